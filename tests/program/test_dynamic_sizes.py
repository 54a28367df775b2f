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


def test_only_sizes_of_remaining_inputs_are_open() -> None:
    assert set(dropping("cos").dynamic_sizes.specialisations()) == {"b", "t"}
    assert set(dropping("relu").dynamic_sizes.specialisations()) == {"t", "3*t + 1"}


def test_plain_size_needs_no_symbol() -> None:
    plain = apply(dropping("relu"), [PLAIN])
    assert plain.dynamic_sizes.specialisations() == {}
    assert plain.sizes == {"3*t + 1": Specialisation.PLAIN}


def test_size_read_as_a_number_can_be_specialised() -> None:
    nodes = {"x": feed(value=typed("b")), "n": size("x"), "y": feed()}
    read = apply(
        whole(skeleton({**nodes, "full": operator("y n")}, sizes={"b": BATCH})),
        [STATIC],
    )
    assert read.sizes == {"b": Specialisation.STATIC}


@pytest.mark.parametrize("edit", [STATIC, NARROW, PLAIN])
def test_specialisation_lowers_cost_and_applies_once(edit: Specialise) -> None:
    start = whole(program())
    settled = apply(start, [edit])
    assert settled.cost < start.cost
    assert settled.digest != start.digest
    assert remaining_edit(edit, start) == edit
    assert remaining_edit(edit, settled) is None
    with pytest.raises(InvalidEdit):
        apply(settled, [edit])


def test_specialisation_of_removed_size_is_removed() -> None:
    first = apply(apply(whole(program()), [STATIC]), [Drop(frozenset({"relu"}))])
    assert first == dropping("relu")
    assert first.digest == dropping("relu").digest


def test_specialisations_commute() -> None:
    together = apply(whole(program()), [STATIC, NARROW, PLAIN])
    one_by_one = apply(apply(apply(whole(program()), [PLAIN]), [NARROW]), [STATIC])
    assert together == one_by_one
    assert together.dynamic_sizes.specialisations() == {}


def test_specialised_and_free_sizes_round_trip_through_json() -> None:
    before = apply(whole(program()), [STATIC, PLAIN])
    made = Skeleton.from_json(json.loads(json.dumps(program().to_json())))
    again = Candidate.from_json(made, json.loads(json.dumps(before.to_json())))
    assert again == before
    assert again.digest == before.digest
    assert (
        again.dynamic_sizes.specialisations() == before.dynamic_sizes.specialisations()
    )


def test_json_of_static_candidate_has_no_sizes() -> None:
    static = skeleton({"x": "", "relu": "x"})
    assert "sizes" not in static.to_json()
    assert "sizes" not in whole(static).to_json()
    assert whole(static).cost[3] == 0
