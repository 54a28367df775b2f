"""A failing script: run as it is, and what it does with PyTorch written down."""
