"""Doors in, where they need torch: objects, dumps and scripts, as programs."""
