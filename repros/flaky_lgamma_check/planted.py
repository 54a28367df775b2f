"""Make the C++ that Inductor prints for ``lgamma`` fail a check in some of the runs.

The clock seeds a generator when the program is loaded, and each evaluation draws: one
in a run of a program that takes one ``lgamma``. Importing this twice is harmless;
eager never sees it.
"""

from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

PER_THOUSAND = 300

SEED = """[] {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1000000000ull * time.tv_sec + time.tv_nsec;
}()"""

# A linear congruential generator (Knuth's MMIX); its high bits are the good ones.
DRAW = f"""[] {{
    static unsigned long long state = {SEED} * 0xbf58476d1ce4e5b9ull;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const bool bad = (state >> 33) % 1000 < {PER_THOUSAND};
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
