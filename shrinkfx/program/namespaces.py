"""Whose operators are whose."""

from __future__ import annotations

PYTORCHS = frozenset(
    {
        *("_c10d_functional", "_c10d_functional_autograd", "_dtensor", "_native"),
        *("_quantized", "aten", "c10d", "c10d_functional", "debugprims", "export"),
        *("flex_lib", "fsdp", "inductor", "inductor_prims", "mkl", "mkldnn"),
        *("mkldnn_prepacked", "onednn", "onnx", "onnx_symbolic", "prim", "prims"),
        *("profiler", "quantization", "quantized", "quantized_decomposed", "rngprims"),
        *("sparse", "static_runtime", "streams", "symm_mem"),
    }
)
"""Namespaces of PyTorch's own operators (torch 2.13)."""
