"""Generate Inductor's CUDA code on a machine without a GPU."""
