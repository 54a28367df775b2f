"""Memory errors made visible: what a kernel may touch, and what it does touch."""
