"""Programs as Python source that PyTorch engineers can read."""
