"""Generated CUDA kernels, run on CPU tensors under bounds checks."""
