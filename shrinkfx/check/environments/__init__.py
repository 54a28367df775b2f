"""Environments with other versions of PyTorch: choose, make, find and remove them."""
