"""What preloads do: to files, to PyTorch, and when they run alone."""
