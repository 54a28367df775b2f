"""From a program to Python that a PyTorch engineer can read."""
