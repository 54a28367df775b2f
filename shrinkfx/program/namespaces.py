"""Whose operators are whose."""

from __future__ import annotations

PYTORCHS = frozenset(
    {
        *("_c10d_functional", "_c10d_functional_autograd", "_dtensor"),
        *("_inductor_test", "_native", "_quantized", "_test", "aten", "c10d"),
        *("c10d_functional", "cuda", "debug_mode_ops", "debugprims", "export"),
        *("flex_lib", "fsdp", "inductor", "inductor_prims", "mkl", "mkldnn"),
        *("mkldnn_prepacked", "onednn", "onnx", "onnx_symbolic"),
        *("prepacked", "prim", "prims"),
        *("profiler", "quantization", "quantized", "quantized_decomposed", "rngprims"),
        *("sparse", "static_runtime", "streams", "symm_mem"),
    }
)
"""Namespaces of PyTorch's own operators (torch 2.13), those for GPUs and phones too."""
