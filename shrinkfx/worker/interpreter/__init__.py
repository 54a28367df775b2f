"""Run generated CUDA kernels on CPU tensors with bounds checks."""
