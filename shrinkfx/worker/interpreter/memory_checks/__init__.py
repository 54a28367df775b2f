"""What a kernel may touch, and what it does touch."""
