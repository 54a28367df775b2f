"""Names of PyTorch's operators, functions and environment variables.

This module imports nothing, because the processes of a captured script read it too.
"""

PYTORCH_NAMESPACES = frozenset(
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
"""Namespaces of PyTorch's own operators (2.13 to 2.15), also for GPUs and phones."""

SIZE_FUNCTIONS = frozenset(
    {
        *("sym_size.int", "sym_stride.int", "sym_numel.default"),
        *("sym_storage_offset.default", "sym_max", "sym_min", "sym_not", "sym_float"),
        "sym_int",
    }
)
"""The ``__name__`` of functions that read or compute sizes; they are not operators."""

ARITHMETIC = frozenset({"_operator", "math"})
"""Modules whose functions compute with sizes, unless they return a tensor."""

TUNING = ("TORCH", "PYTORCH", "AOT", "TRITON", "OMP_", "MKL_", "GOMP_", "KMP_")
"""Prefixes of the variables by which a shell changes PyTorch's behaviour."""

VARIABLES = (*TUNING, "CUDA", "ATEN_")
"""Prefixes of environment variables that change what PyTorch does."""

COMPILERS = ("CXX",)
"""Prefixes of variables that choose the C++ compiler and its flags."""

SECRETS = ("TOKEN", "KEY", "SECRET", "PASS")
"""Words in the names of variables that must not be recorded."""
