"""Collect evidence on a compiled program: its kernels, their arguments and results."""
