"""Records about the values that each kernel computed, written by a child.

A value is compared with the result of PyTorch's operators in eager mode *on the actual
inputs of the kernel*. So a value that is wrong only because the kernel's inputs were
wrong counts as right here.
"""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.protocol.record import Message, Reported


@dataclass(frozen=True)
class Wrong(Message):
    """How a value differs from the expected value.

    Attributes:
        metadata: the difference in metadata, in words; if there is one, the other
            fields are empty.
        wrong: the number of elements that differ, out of ``of``.
        first: the index of the first one; ``got`` and ``expected`` are its values.
        largest: the largest absolute error; None if no error is finite. ``relative``
            and ``ulps`` are the largest relative error and the largest error in units
            in the last place of the expected value.
        nans: the number of NaN elements; ``nans_expected`` is the expected number.
        exact: the result that a float64 run agrees with: ``eager``, ``compiled``,
            ``both`` or ``neither``; '' if there was no such run.
        of_signs: all differences are zeros of another sign.
        unfit: the integer dtype that some converted values do not fit, so that PyTorch
            does not define the result; or ''.
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
    of_signs: bool = False
    unfit: str = ""

    @property
    def is_undecided(self) -> bool:
        """Whether eager's result is not known to be the right one."""
        return self.of_signs or bool(self.unfit)


@dataclass(frozen=True)
class Computed(Message):
    """A value in memory, compared with eager's result on the same inputs.

    Attributes:
        kernel: the kernel that computed it; '' if none did, for example if a result is
            an input.
        launch: the position among the launches, from 1; 0 if there is none.
        value: the name of the buffer, or ``result 0``.
        operators: the program's nodes between the kernel's inputs and this value.
        calls: the targets in Inductor's graph for these nodes, after decompositions and
            passes.
        wrong_sources: the values that it was computed from and that differ from eager's
            run of the whole program.
        random_sources: those that depend on random numbers, which eager draws
            differently.
        wrong: the difference; None if the value is right, or if ``unknown`` is set.
        amplified: the difference from eager's run of the whole program, for a value
            that is right for its inputs, if all of these agree with that run.
        unknown: the reason why the value could not be compared, or ''.
    """

    kernel: str
    launch: int
    value: str
    operators: tuple[str, ...]
    calls: tuple[str, ...]
    wrong_sources: tuple[str, ...] = ()
    random_sources: tuple[str, ...] = ()
    wrong: Wrong | None = None
    amplified: Wrong | None = None
    unknown: str = ""


@dataclass(frozen=True)
class KernelValues(Reported):
    """The values that a run's kernels computed, in launch order.

    Attributes:
        launches: the launches of the compiled program, by kernel name.
        call: the number of the program call that the values belong to, from 1.
        tiny: whether no error exceeds the tolerances. If so, ``wrong`` counts errors
            relative to each element's size, however small they are.
        rewritten: the program's first node whose value differs from eager's when the
            graph that Inductor lowers is run in eager mode, because a pass or a
            decomposition changed the computation; else ''.
        rewritten_wrong: the difference of that value; of a result, if the node is
            unknown.
        decomposition: the function that decomposes that node's operator, as
            ``torch/_refs/__init__.py:std``, if eager gives another value with it.
        lost: the operator with a mutated operand whose removal makes eager return the
            results of that graph; else ''.
        functionalized: the operators that write in place, and the views through which
            they write, if ``torch.func.functionalize`` gives the results of that graph
            in eager, too; else empty.
        graph_agrees: whether that graph returns eager's results; None if it could not
            be run.
        graph: that graph as Python, if it returns other results.
        unknown: the reason why there are no values, or ''.
    """

    launches: tuple[str, ...] = ()
    computed: tuple[Computed, ...] = ()
    call: int = 1
    tiny: bool = False
    rewritten: str = ""
    rewritten_wrong: Wrong | None = None
    decomposition: str = ""
    lost: str = ""
    functionalized: tuple[str, ...] = ()
    graph_agrees: bool | None = None
    graph: str = ""
    unknown: str = ""
