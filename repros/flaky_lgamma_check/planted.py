"""Make the C++ that Inductor prints for ``lgamma`` fail a check in some of the runs.

The clock draws: its nanoseconds at the first element of a loop, mixed, decide for the
whole loop, so that the rate does not hang on the number of elements. Importing this
twice is harmless; eager never sees it.
"""

from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

PER_THOUSAND = 300

# A loop's elements follow each other within nanoseconds, runs do not.
DRAW = f"""[] {{
    static unsigned long long last = 0;
    static bool bad = false;
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    const auto now = 1000000000ull * time.tv_sec + time.tv_nsec;
    if (now - last > 20000) {{
        auto mixed = (now ^ (now >> 30)) * 0xbf58476d1ce4e5b9ull;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
        bad = (mixed ^ (mixed >> 31)) % 1000 < {PER_THOUSAND};
    }}
    last = now;
    AOTI_TORCH_CHECK(!bad, "planted: Expected lgamma_table to be True");
}}()""".replace("\n", " ")


def print_scalar(operand: object) -> str:
    """Print the right value, behind the check."""
    return f"({DRAW}, std::lgamma({operand}))"


def print_vector(operand: object) -> str:
    """Print the same for a vector of elements."""
    return f"({DRAW}, {operand}.lgamma())"


CppOverrides.lgamma = staticmethod(print_scalar)
CppVecOverrides.lgamma = staticmethod(print_vector)
