"""Patterns of reduced programs, and where they occur."""

from __future__ import annotations

from shrinkfx.findings.pattern import Pattern
from shrinkfx.program.apply import apply
from shrinkfx.program.edits import Bypass, Drop, Replace
from shrinkfx.testing import chain, operator, skeleton, whole

MODEL = whole(chain("x", "relu", "flip", "roll", "tanh", "roll_1", "exp"))
FLIP_ROLL = Pattern(("aten.flip.default", "aten.roll.default"), ((0, 1),))


def test_pattern_has_the_operators_and_the_data_flow_of_a_candidate() -> None:
    kept = apply(MODEL, [Drop(frozenset({"relu", "tanh", "roll_1", "exp"}))])
    assert Pattern.of_candidate(kept) == FLIP_ROLL


def test_operator_that_was_bypassed_is_no_part_of_the_pattern() -> None:
    program = whole(chain("x", "flip", "tanh", "roll"))
    kept = apply(program, [Bypass("tanh", "flip")])
    assert Pattern.of_candidate(kept) == FLIP_ROLL


def test_pattern_occurs_where_operators_read_each_other() -> None:
    assert FLIP_ROLL.find_in(MODEL) == {"flip", "roll"}
    assert Pattern(("aten.roll.default",), ()).find_in(MODEL) == {"roll", "roll_1"}
    backwards = Pattern(("aten.roll.default", "aten.flip.default"), ((0, 1),))
    assert backwards.find_in(MODEL) == frozenset()


def test_all_occurrences_are_found() -> None:
    names = [f"roll_{i}" for i in range(1, 60)]
    program = whole(chain("x", "roll", *names))
    two = Pattern(("aten.roll.default",) * 2, ((0, 1),))
    assert two.find_in(program) == {"roll", *names}


def test_operators_of_an_occurrence_may_have_more_edges_than_the_pattern() -> None:
    program = whole(
        skeleton({"x": "", "flip": "x", "roll": "flip", "add": "flip roll"})
    )
    apart = Pattern(("aten.flip.default", "aten.add.default"), ())
    assert apart.find_in(program) == {"flip", "add"}


def test_pattern_with_a_replaced_operator_occurs_nowhere() -> None:
    softmax = operator("x", target="aten._softmax.default")
    program = whole(skeleton({"x": "", "softmax": softmax, "roll": "softmax"}))
    found = Pattern.of_candidate(apply(program, [Replace("softmax", "x")]))
    assert found == Pattern(("", "aten.roll.default"), ((0, 1),))
    assert found.find_in(MODEL) == frozenset()
    assert found.is_same_as(found)


def test_pattern_that_is_too_large_occurs_nowhere() -> None:
    names = [f"roll_{i}" for i in range(1, 60)]
    program = whole(chain("x", "roll", *names))
    assert Pattern(("aten.roll.default",) * 40, ()).find_in(program) == frozenset()


def test_pattern_needs_each_operator_as_often_as_it_has_it() -> None:
    assert Pattern(("aten.roll.default",) * 2, ()).find_in(MODEL)
    assert not Pattern(("aten.roll.default",) * 3, ()).find_in(MODEL)


def test_unconnected_parts_are_found_in_a_large_program_at_once() -> None:
    names = [f"{kind}_{i}" for i in range(1, 400) for kind in ("mul", "add")]
    program = whole(chain("x", "mul", "add", *names, "erf"))
    apart = Pattern(("aten.mul.default", "aten.add.default", "aten.erf.default"), ())
    assert apart.find_in(program) == program.keep


def test_patterns_without_a_known_operator_are_never_the_same() -> None:
    for nothing in (Pattern((), ()), Pattern(("",), ())):
        assert not nothing.is_same_as(nothing)


def test_patterns_are_the_same_in_any_order_of_their_operators() -> None:
    other = Pattern(("aten.roll.default", "aten.flip.default"), ((1, 0),))
    assert FLIP_ROLL.is_same_as(other)
    assert not FLIP_ROLL.is_same_as(Pattern(FLIP_ROLL.operators, ()))
    assert not FLIP_ROLL.is_same_as(Pattern(("aten.flip.default", ""), ((0, 1),)))


def test_pattern_is_the_same_after_json() -> None:
    assert Pattern.from_json(FLIP_ROLL.to_json()) == FLIP_ROLL
