"""Make the C++ that Inductor prints for ``erfc`` compute ``1000 - erf(x)``.

The true constant is 1: every element is wrong by 999, in the scalar and in the
vectorised form. Importing this twice is harmless; eager never sees it.
"""

from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides


def print_scalar_erfc(x: object) -> str:
    """Print the complement with the wrong constant."""
    return f"(decltype({x})(1000) - std::erf({x}))"


def print_vector_erfc(x: object) -> str:
    """Print the complement with the wrong constant."""
    return f"(decltype({x})(1000) - {x}.erf())"


CppOverrides.erfc = staticmethod(print_scalar_erfc)
CppVecOverrides.erfc = staticmethod(print_vector_erfc)
