"""Conversion of programs to skeletons, and of candidates to programs."""
