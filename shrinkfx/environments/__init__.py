"""Environments with other versions of PyTorch: choose, make, keep and remove them."""
