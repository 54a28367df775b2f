"""Run a failing script as it is, and record what it does with PyTorch."""
