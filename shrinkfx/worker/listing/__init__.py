"""Printed programs: built, printed as source, rewritten, and repaired."""
