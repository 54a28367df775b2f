"""What a run, a server or a check can be set to."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

InductorOptions = Mapping[str, Any]
"""Settings of ``torch._inductor.config`` by their names: each is of a type of its own,
which Inductor alone knows."""


class Backend(StrEnum):
    """What compiles and runs a program."""

    AUTO = "auto"
    """The interpreter for a CUDA program where there is no CUDA device."""
    AOTI = "aoti"
    """AOTInductor, as users call it."""
    INTERPRETER = "interpreter"
    """Inductor's CUDA kernels, on Triton's interpreter, with every access checked."""


ARCHS = ("sm_90", "sm_80", "sm_100")
"""GPUs that kernels can be made for where there is none; the default first."""


class Probe(StrEnum):
    """What the interpreter looks at; each finds what the others cannot."""

    REAL = "real"
    """The kernels of Inductor's Python wrapper, on the failing inputs."""
    HINTS = "hints"
    """AOTInductor's kernels, on what it makes up to time them while compiling."""
    CONTRACT = "contract"
    """Sizes and strides: of operators that no kernel computes, and of inputs."""
    COMPILE = "compile"
    """What Triton and ptxas say of AOTInductor's kernels; none is run."""


class Guard(StrEnum):
    """What has an access beyond a tensor show.

    New tensors lie against inaccessible pages, in a server that has such; or on a GPU
    a tool of compute-sanitizer looks at each access.
    """

    OFF = "off"
    AFTER = "after"
    """An inaccessible page follows: an overrun faults."""
    BEFORE = "before"
    """An inaccessible page precedes: an underrun faults."""
    MEMCHECK = "memcheck"
    """None; compute-sanitizer looks at each access of a GPU."""
    INITCHECK = "initcheck"
    """None; it looks for reads of what nobody wrote."""
    RACECHECK = "racecheck"
    """None; it looks for races in shared memory."""

    @property
    def is_sanitizer(self) -> bool:
        return self in SANITIZERS


SANITIZERS = (Guard.MEMCHECK, Guard.INITCHECK, Guard.RACECHECK)
"""Tools of compute-sanitizer."""


class Build(StrEnum):
    """How AOTInductor's library is built, for a program on the CPU."""

    FAST = "fast"
    """With the part that all models share compiled once; the same code in it."""
    STOCK = "stock"
    """As AOTInductor does it."""


class Weights(StrEnum):
    """Where a compiled program's weights are."""

    BESIDE = "beside"
    """Handed over where it is loaded, if they are many: nothing writes them."""
    INSIDE = "inside"
    """In its package, where AOTInductor puts them."""


MANY_BYTES = 4 << 20
"""Weights that a package is better without; a small check writes more than that."""


class Step(StrEnum):
    """The parts of a build, in order."""

    LOWERING = "lowering"
    """All that is done before the C++ compiler sees the program."""
    WRAPPER = "wrapper"
    KERNEL = "kernel"
    LINK = "link"


class Subsystem(StrEnum):
    """Parts of Inductor that count what they apply, by its own names."""

    PRE_GRAD = "pre_grad_passes"
    JOINT = "joint_graph_passes"
    POST_GRAD = "post_grad_passes"
    LOWERINGS = "lowerings"
    """Of PyTorch's own operators: one left out falls back to the operator itself."""


class GraphForm(StrEnum):
    """The graph that candidates are cut from."""

    FUNCTIONAL = "functional"
    """Without in-place operators, as Inductor itself sees a program."""
    IN_PLACE = "in-place"
    """As the file holds it."""
    INLINED_COND = "inlined-cond"
    """Functional, with the branches that it takes in the place of ``cond``."""


class CandidateForm(StrEnum):
    """What is compiled of a candidate."""

    PROGRAM = "program"
    """The graph that it was rebuilt as."""
    SOURCE = "source"
    """What is exported when that is printed as Python and run."""
