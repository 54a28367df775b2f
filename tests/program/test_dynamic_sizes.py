"""Which sizes a candidate leaves open, and what settling one means."""

from __future__ import annotations

import json

import pytest

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.apply import apply, remaining_edit
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop, Specialisation, Specialise
from shrinkfx.program.skeleton import FreeSize, Skeleton, TensorType
from shrinkfx.testing import feed, operator, size, skeleton, whole

BATCH, LENGTH = FreeSize(("b",), 1, 1), FreeSize(("t",), 4, 5)
LONGER = FreeSize(("t",), 13, 16)
STATIC, NARROW = (
    Specialise("b", Specialisation.STATIC),
    Specialise("t", Specialisation.NARROW),
)
PLAIN = Specialise("3*t + 1", Specialisation.PLAIN)


def typed(*shape: str) -> TensorType:
    return TensorType("float32", shape)


def program() -> Skeleton:
    """Two inputs, ``(b, t)`` and ``(3*t + 1,)``, each with an operator of its own."""
    return skeleton(
        {
            "x": feed(value=typed("b", "t")),
            "y": feed(value=typed("3*t + 1")),
            "relu": operator("x", value=typed("b", "t")),
            "cos": operator("y", value=typed("3*t + 1")),
        },
        sizes={"b": BATCH, "t": LENGTH, "3*t + 1": LONGER},
    )


def dropping(*names: str) -> Candidate:
    return apply(whole(program()), [Drop(frozenset(names))])


def test_size_that_differs_between_the_runs_stays_dynamic() -> None:
    assert whole(program()).dynamic_sizes.specialisations() == {
        "b": [Specialisation.STATIC],
        "t": [Specialisation.NARROW],
        "3*t + 1": [Specialisation.PLAIN],
    }
    with pytest.raises(InvalidEdit, match="t cannot be made static"):
        apply(whole(program()), [Specialise("t", Specialisation.STATIC)])


def test_only_what_the_inputs_have_is_open() -> None:
    assert set(dropping("cos").dynamic_sizes.specialisations()) == {"b", "t"}
    assert set(dropping("relu").dynamic_sizes.specialisations()) == {"t", "3*t + 1"}


def test_plain_size_needs_no_symbol() -> None:
    plain = apply(dropping("relu"), [PLAIN])
    assert plain.dynamic_sizes.specialisations() == {}
    assert plain.sizes == {"3*t + 1": Specialisation.PLAIN}


def test_size_that_an_operator_reads_as_a_number_is_open() -> None:
    nodes = {"x": feed(value=typed("b")), "n": size("x"), "y": feed()}
    read = apply(
        whole(skeleton({**nodes, "full": operator("y n")}, sizes={"b": BATCH})),
        [STATIC],
    )
    assert read.sizes == {"b": Specialisation.STATIC}


@pytest.mark.parametrize("edit", [STATIC, NARROW, PLAIN])
def test_each_edit_is_a_step_down_and_done_once(edit: Specialise) -> None:
    start = whole(program())
    settled = apply(start, [edit])
    assert settled.cost < start.cost
    assert settled.digest != start.digest
    assert remaining_edit(edit, start) == edit
    assert remaining_edit(edit, settled) is None
    with pytest.raises(InvalidEdit):
        apply(settled, [edit])


def test_what_was_settled_of_a_size_that_goes_is_forgotten() -> None:
    first = apply(apply(whole(program()), [STATIC]), [Drop(frozenset({"relu"}))])
    assert first == dropping("relu")
    assert first.digest == dropping("relu").digest


def test_edits_commute() -> None:
    together = apply(whole(program()), [STATIC, NARROW, PLAIN])
    one_by_one = apply(apply(apply(whole(program()), [PLAIN]), [NARROW]), [STATIC])
    assert together == one_by_one
    assert together.dynamic_sizes.specialisations() == {}


def test_settled_sizes_and_free_ones_survive_json() -> None:
    before = apply(whole(program()), [STATIC, PLAIN])
    made = Skeleton.from_json(json.loads(json.dumps(program().to_json())))
    again = Candidate.from_json(made, json.loads(json.dumps(before.to_json())))
    assert again == before
    assert again.digest == before.digest
    assert (
        again.dynamic_sizes.specialisations() == before.dynamic_sizes.specialisations()
    )


def test_candidate_without_free_sizes_says_nothing_of_them() -> None:
    static = skeleton({"x": "", "relu": "x"})
    assert "sizes" not in static.to_json()
    assert "sizes" not in whole(static).to_json()
    assert whole(static).cost[3] == 0
