"""Which dims are specialised, and what is left of a failure that needs some."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Specialisation, Specialise
from shrinkfx.program.skeleton import FreeSize, Skeleton, TensorType
from shrinkfx.program.view import View
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.strategies.operators import SpecializeDims
from shrinkfx.testing import FakeOracle, feed, operator, skeleton, whole


def program(sizes: dict[str, FreeSize]) -> Skeleton:
    """Make a chain of operators on an input that has these sizes."""
    value = TensorType("float32", tuple(sizes))
    names = ("x", "norm", "tanh", "mul")
    nodes = {name: operator(before, value=value) for before, name in pairwise(names)}
    return skeleton({"x": feed(value=value), **nodes}, sizes=sizes)


def reduced(
    sizes: dict[str, FreeSize], open_as: Callable[[Candidate], bool]
) -> Candidate:
    """Reduce a failure of ``tanh`` that needs sizes to be as ``open_as`` says."""
    oracle = FakeOracle(lambda c: "tanh" in c.keep and open_as(c))
    return Reducer(whole(program(sizes)), Asker(oracle), choose(None)).run()


ONLY_ONE_MATTERS = {"b": FreeSize(("b",), 1, 1), "t": FreeSize(("t",), 32, 33)}


def test_dims_of_equal_size_in_both_runs_are_proposed_static() -> None:
    view = View(whole(program(ONLY_ONE_MATTERS)))
    assert list(SpecializeDims().propose(view)) == [
        Specialise("b", Specialisation.STATIC),
        Specialise("t", Specialisation.NARROW),
    ]


def test_program_without_free_sizes_gives_no_proposals() -> None:
    assert list(SpecializeDims().propose(View(whole(program({}))))) == []


def test_only_the_relevant_dim_stays_dynamic() -> None:
    best = reduced(ONLY_ONE_MATTERS, lambda _: True)
    assert best.operators == ("tanh",)
    assert best.sizes == {"b": Specialisation.STATIC, "t": Specialisation.NARROW}


def test_dim_that_the_failure_needs_is_not_specialised() -> None:
    best = reduced(ONLY_ONE_MATTERS, lambda c: "b" not in c.sizes)
    assert best.sizes == {"t": Specialisation.NARROW}


def test_only_one_of_two_equal_dims_stays_dynamic() -> None:
    equal = {"s": FreeSize(("s",), 3, 2), "t": FreeSize(("t",), 2, 2)}
    best = reduced(equal, lambda _: True)
    assert best.sizes == {"s": Specialisation.NARROW, "t": Specialisation.STATIC}


def test_derived_dim_becomes_plain_if_possible() -> None:
    sizes = {"3*t + 1": FreeSize(("t",), 10, 13), "t": FreeSize(("t",), 3, 4)}
    value, other = TensorType("float32", ("3*t + 1",)), TensorType("float32", ("t",))
    nodes = {
        "coarse": feed(value=other),
        "fine": feed(value=value),
        "cos": operator("fine", value=value),
        "add": operator("cos coarse", value=value),
    }
    start = whole(skeleton(nodes, sizes=sizes))
    alone = Reducer(
        start, Asker(FakeOracle(lambda c: "cos" in c.keep)), choose(None)
    ).run()
    assert alone.inputs == ("fine",)
    assert alone.sizes == {"3*t + 1": Specialisation.PLAIN}

    related = FakeOracle(
        lambda c: "cos" in c.keep and Specialisation.PLAIN not in {*c.sizes.values()}
    )
    assert Reducer(start, Asker(related), choose(None)).run().sizes == {
        "t": Specialisation.NARROW
    }
