"""Make the C++ that Inductor prints for ``log1p`` compute ``log(1000 + x)``.

In the scalar and in the vectorised form. Importing this twice is harmless; eager
never sees it.
"""

from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides


def print_scalar_log1p(x: object) -> str:
    """Print the logarithm with the wrong constant."""
    return f"std::log(decltype({x})(1000) + {x})"


def print_vector_log1p(x: object) -> str:
    """Print the logarithm with the wrong constant."""
    return f"(decltype({x})(1000) + {x}).log()"


CppOverrides.log1p = staticmethod(print_scalar_log1p)
CppVecOverrides.log1p = staticmethod(print_vector_log1p)
