"""What a bug report says: PyTorch's form, filled in."""
