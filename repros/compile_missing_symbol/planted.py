"""Make the C++ that Inductor prints for ``hypot`` call a function nobody declares.

g++ stops with an error, for the scalar and for the vectorised form. Importing this
twice is harmless; eager never sees it.
"""

from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides


def print_hypot(x: object, y: object) -> str:
    """Print the call of a missing function."""
    return f"planted_missing_hypot({x}, {y})"


CppOverrides.hypot = staticmethod(print_hypot)
CppVecOverrides.hypot = staticmethod(print_hypot)
