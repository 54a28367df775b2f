"""Symbolic sizes of a program: their values in a run, and their ranges."""
