"""Make the C++ that Inductor prints for ``copysign`` read from an unmapped address.

The kernel compiles and dies of SIGSEGV at its first element, in the scalar and in
the vectorised form. Importing this twice is harmless; eager never sees it.
"""

from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

# Volatile, or the compiler may take the read for undefined behaviour and drop it.
# Page zero is never mapped; 8 rather than 0 escapes the compiler's null checks.
BAD_READ = "*reinterpret_cast<const volatile float*>(8)"


def print_copysign(magnitude: object, sign: object) -> str:
    """Print an expression of the operands' type, scalar or vector, that faults."""
    return f"({magnitude} + {sign} + decltype({magnitude})({BAD_READ}))"


CppOverrides.copysign = staticmethod(print_copysign)
CppVecOverrides.copysign = staticmethod(print_copysign)
