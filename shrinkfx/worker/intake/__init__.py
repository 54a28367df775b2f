"""Resolve in-memory objects, dumps and scripts to programs, where that needs torch."""
