"""CUDA code as Inductor generates it, where there is no GPU."""
