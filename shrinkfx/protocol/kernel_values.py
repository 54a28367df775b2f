"""What a child leaves of the values that each kernel has made.

A value is held against what PyTorch's operators make in eager of *the very values that
the kernel was given*: one that is wrong only because it was given something wrong is
right here.
"""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.protocol.record import Message, Reported


@dataclass(frozen=True)
class Wrong(Message):
    """How a value differs from what it should be.

    Attributes:
        metadata: what differs other than numbers, in words; then there is nothing else.
        wrong: elements that differ, ``of`` so many.
        first: the index of the first one; ``got`` and ``expected`` are there.
        largest: absolute error; None where none is finite. ``relative`` and ``ulps``
            are the largest likewise; an ulp is a unit in the last place of what is
            expected.
        nans: elements that are NaN, where ``nans_expected`` should be.
        exact: what a float64 run agrees with: ``eager``, ``compiled``, ``both`` or
            ``neither``; '' where there is none.
    """

    metadata: str = ""
    wrong: int = 0
    of: int = 0
    first: tuple[int, ...] = ()
    got: str = ""
    expected: str = ""
    largest: float | None = None
    relative: float | None = None
    ulps: float | None = None
    nans: int = 0
    nans_expected: int = 0
    exact: str = ""


@dataclass(frozen=True)
class Computed(Message):
    """A value in memory, and what eager makes of what it was computed from.

    Attributes:
        kernel: what has made it; '' where none has: a result that is an input, say.
        launch: its place among the launches, from 1; 0 where there is none.
        value: the buffer, or ``result 0``.
        node: of the graph that Inductor lowers, whose value it is.
        operators: the program's nodes between what it was given and this value.
        calls: what Inductor's graph calls for these: after decompositions and passes.
        given: values that it was computed from.
        given_wrong: those of them that are not eager's of the whole program.
        given_random: those that depend on random numbers: eager has drawn others.
        wrong: None where it is right, or where that is ``unknown``.
        unknown: why it could not be told, or ''.
        missized: which size of it compiled code has worked out wrongly, or ''.
    """

    kernel: str
    launch: int
    value: str
    node: str
    operators: tuple[str, ...]
    calls: tuple[str, ...]
    given: tuple[str, ...] = ()
    given_wrong: tuple[str, ...] = ()
    given_random: tuple[str, ...] = ()
    wrong: Wrong | None = None
    unknown: str = ""
    missized: str = ""


@dataclass(frozen=True)
class Overwritten(Message):
    """What an operator has changed that it declares to read alone.

    Attributes:
        value: the buffer, or the input.
        kernel: the operator's, ``launch`` from 1.
        operators: the program's nodes.
        changed: elements, ``of`` so many.
        read_by: kernels that were given it later.
        readers: the program's nodes that the first of these computes of it.
    """

    value: str
    kernel: str
    launch: int
    operators: tuple[str, ...]
    changed: int
    of: int
    read_by: tuple[str, ...]
    readers: tuple[str, ...]


@dataclass(frozen=True)
class KernelValues(Reported):
    """What a run's kernels have made, in the order of their launches.

    Attributes:
        launches: of the compiled program, by their kernels.
        call: of the program, from 1, that the values are of.
        tiny: nothing was wrong beyond the tolerances, so ``wrong`` counts what is wrong
            relative to its own size, however small that is.
        rewritten: the program's first node whose value is not eager's any more in the
            graph that Inductor lowers, run in eager: a pass or a decomposition has
            changed what it computes; else ''.
        rewritten_wrong: how that value differs; a result, where it is not known.
        lost: the operator that writes into an operand, without which eager gives what
            that graph gives; else ''.
        graph_agrees: that graph gives eager's results; None if it could not be run.
        overwritten: values that are others than they were made, and are read then.
        unknown: why there are no values, or ''.
    """

    launches: tuple[str, ...] = ()
    computed: tuple[Computed, ...] = ()
    call: int = 1
    tiny: bool = False
    rewritten: str = ""
    rewritten_wrong: Wrong | None = None
    lost: str = ""
    graph_agrees: bool | None = None
    overwritten: tuple[Overwritten, ...] = ()
    unknown: str = ""
