"""Make the C++ that Inductor prints for ``fmod`` loop for ever.

In the scalar and in the vectorised form. Importing this twice is harmless; eager
never sees it.
"""

from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides


def print_fmod(a: object, b: object) -> str:
    """Print a loop that only a signal ends, then an expression of the right type."""
    # Volatile, or the compiler may assume that the loop ends.
    return f"([&] {{ for (volatile bool on = true; on;) {{}} return {a} + {b}; }}())"


CppOverrides.fmod = staticmethod(print_fmod)
CppVecOverrides.fmod = staticmethod(print_fmod)
