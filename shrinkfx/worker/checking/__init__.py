"""Check a program: compile it, run it, and compare its results with eager's."""
