"""Choices for a run, a server or a check."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

InductorOptions = Mapping[str, Any]
"""Settings of ``torch._inductor.config`` by name.

Each setting has a type of its own, which only Inductor knows.
"""


class Backend(StrEnum):
    """The backend that compiles and runs a program."""

    AUTO = "auto"
    """The interpreter for a CUDA program without a CUDA device, else AOTInductor."""
    AOTI = "aoti"
    """AOTInductor, as users call it."""
    INDUCTOR = "inductor"
    """Inductor, as ``torch.compile`` calls it."""
    INTERPRETER = "interpreter"
    """Inductor's CUDA kernels in Triton's interpreter, which checks every access."""


ARCHS = ("sm_90", "sm_80", "sm_100")
"""GPU architectures to compile kernels for if there is no GPU; the default first."""


class SandboxMode(StrEnum):
    """Whether workers run in a sandbox (``system/sandbox.py``)."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Probe(StrEnum):
    """A mode of the interpreter; each one finds errors that the others cannot."""

    REAL = "real"
    """Run the kernels of Inductor's Python wrapper on the failing inputs."""
    HINTS = "hints"
    """Run AOTInductor's kernels on the inputs that it makes up to benchmark them."""
    CONTRACT = "contract"
    """Check sizes and strides of inputs and of operators that no kernel computes."""
    COMPILE = "compile"
    """Compile AOTInductor's kernels with Triton and ptxas; run none."""


class Guard(StrEnum):
    """The method that makes an access outside a tensor visible.

    New tensors are placed next to inaccessible pages, if the server supports this; on a
    GPU, a tool of compute-sanitizer can check each access instead.
    """

    OFF = "off"
    AFTER = "after"
    """An inaccessible page follows each tensor: an overrun faults."""
    BEFORE = "before"
    """An inaccessible page precedes each tensor: an underrun faults."""
    MEMCHECK = "memcheck"
    """No pages; compute-sanitizer checks each access on the GPU."""
    INITCHECK = "initcheck"
    """No pages; compute-sanitizer looks for reads of uninitialized memory."""
    RACECHECK = "racecheck"
    """No pages; compute-sanitizer looks for races in shared memory."""

    @property
    def has_pages(self) -> bool:
        return self in (Guard.AFTER, Guard.BEFORE)

    @property
    def is_sanitizer(self) -> bool:
        return self in SANITIZERS


SANITIZERS = (Guard.MEMCHECK, Guard.INITCHECK, Guard.RACECHECK)
"""Tools of compute-sanitizer."""


class Build(StrEnum):
    """The way to build AOTInductor's library for a program on the CPU."""

    FAST = "fast"
    """Compile the part that all models share once; the code is the same."""
    STOCK = "stock"
    """Build as AOTInductor does."""


class Weights(StrEnum):
    """The place of a compiled program's weights."""

    BESIDE = "beside"
    """Outside the package, if they are large: they are passed when it is loaded.

    So no check writes them to disk.
    """
    INSIDE = "inside"
    """In the package, where AOTInductor puts them."""


MANY_BYTES = 4 << 20
"""Size in bytes above which weights stay outside the package.

A small check writes more than this.
"""


class Step(StrEnum):
    """The steps of a build, in order."""

    LOWERING = "lowering"
    """Everything before the C++ compiler sees the program."""
    WRAPPER = "wrapper"
    KERNEL = "kernel"
    LINK = "link"


class Subsystem(StrEnum):
    """Parts of Inductor that count what they apply, by Inductor's names."""

    PRE_GRAD = "pre_grad_passes"
    JOINT = "joint_graph_passes"
    POST_GRAD = "post_grad_passes"
    LOWERINGS = "lowerings"
    """Lowerings of PyTorch's operators; without one, Inductor calls the operator."""


class GraphForm(StrEnum):
    """The graph that candidates are cut from."""

    FUNCTIONAL = "functional"
    """Without in-place operators, as Inductor sees a program."""
    IN_PLACE = "in-place"
    """As in the file."""
    INLINED_COND = "inlined-cond"
    """Functional, with each ``cond`` replaced by the branch that the program takes."""


class CandidateForm(StrEnum):
    """The form in which a candidate is compiled."""

    PROGRAM = "program"
    """The rebuilt graph."""
    SOURCE = "source"
    """The program that results when the printed candidate is run and exported."""
