"""Doors in: a failing program, taken from where people have it."""
