"""The program graph, edits to it, and candidates. No torch."""
