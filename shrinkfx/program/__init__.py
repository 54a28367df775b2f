"""WHAT is reduced: the graph of a program, edits to it, and candidates. No torch."""
