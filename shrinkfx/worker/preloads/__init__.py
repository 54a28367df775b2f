"""Observe preloads: the files they use, and the changes they make to PyTorch."""
