"""Whose operators are whose, and which are of sizes alone."""

from __future__ import annotations

PYTORCHS = frozenset(
    {
        *("_c10d_functional", "_c10d_functional_autograd", "_dtensor"),
        *("_inductor_test", "_native", "_native_aot", "_quantized", "_test", "aten"),
        *("c10d", "c10d_functional", "coor", "cuda", "debug_mode_ops", "debugprims"),
        *("export", "flex_gemm", "flex_lib", "fsdp", "inductor", "inductor_prims"),
        *("mempool", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "onnx"),
        "onnx_symbolic",
        *("prepacked", "prim", "prims"),
        *("profiler", "quantization", "quantized", "quantized_decomposed", "rngprims"),
        *("sparse", "static_runtime", "streams", "symm_mem"),
    }
)
"""Namespaces of PyTorch's own operators (2.13 to 2.15), for GPUs and phones too."""

OF_SIZES = frozenset(
    {
        *("sym_size.int", "sym_stride.int", "sym_numel.default"),
        *("sym_storage_offset.default", "sym_max", "sym_min", "sym_not", "sym_float"),
        "sym_int",
    }
)
"""What reads sizes or computes with them, by its ``__name__``: no operators."""

ARITHMETIC = frozenset({"_operator", "math"})
"""Modules whose functions compute with sizes, unless they make a tensor."""
