"""Make the C++ for ``expm1`` read from an unmapped address inside a branch of a cond.

Outside of one it is printed as before. Importing this twice is harmless; eager never
sees it.
"""

from collections.abc import Callable

from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides
from torch._inductor.graph import SubgraphLowering
from torch._inductor.virtualized import V

# Volatile, or the compiler may take the read for undefined behaviour and drop it.
BAD_READ = "*reinterpret_cast<const volatile float*>(8)"


def fault_in_branches(right: Callable[[object], str]) -> Callable[[object], str]:
    """Wrap what prints an operator's C++."""

    def print_expm1(x: object) -> str:
        if isinstance(V.graph, SubgraphLowering):
            return f"({x} + decltype({x})({BAD_READ}))"
        return right(x)

    print_expm1.planted = True
    return print_expm1


for overrides in (CppOverrides, CppVecOverrides):
    if not hasattr(overrides.expm1, "planted"):
        overrides.expm1 = staticmethod(fault_in_branches(overrides.expm1))
