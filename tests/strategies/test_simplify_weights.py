"""Weights that need not be any, nor hold anything."""

from __future__ import annotations

from collections.abc import Callable

from support.listings import given, listing
from support.small import drawn, reduced, shape, view

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Convert, Refill, Write
from shrinkfx.program.listing.printed_program import MAIN, InputOrWeight, PrintedProgram
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Initializer,
    Opaque,
    Saved,
    TensorSpec,
)
from shrinkfx.strategies.tensors import SimplifyWeights

MM = "mm = aten.mm.default(x, self.w)\nreturn mm"
LINEAR = """
    mm = aten.mm.default(x, self.w)
    add = aten.add.Tensor(mm, self.v)
    return add"""


def saved(name: str, *shape: int, kind: str = "parameter") -> InputOrWeight:
    return given(name, TensorSpec(shape, "float32", Saved(name)), kind)


def searched(
    program: PrintedProgram, fails: Callable[[PrintedProgram], bool]
) -> tuple[PrintedProgram, int]:
    return reduced(program, fails, ["simplify_weights"])


def fill_of(program: PrintedProgram, name: str) -> Initializer:
    return program.find(name).recipe().fill


def test_large_weight_is_eliminated_in_two_queries() -> None:
    program = listing(MM, saved("w", 2048, 2048), given("x", drawn(4, 2048)))
    best, questions = reduced(
        program, lambda p: True, ["simplify_weights", "shrink_sizes"]
    )
    assert best.weights == ()
    assert best.main.statements[0].code == "torch.ops.aten.mm.default(x, w)"
    assert (shape(best, "w"), fill_of(best, "w")) == ((1, 1), Constant(1.0))
    assert questions == 2


def test_weight_that_must_stay_a_parameter_becomes_constant() -> None:
    program = listing(LINEAR, saved("w", 8, 8), saved("v", 8), given("x", drawn(4, 8)))
    best, questions = searched(program, lambda p: "w" in {g.name for g in p.weights})
    assert [(g.name, g.kind) for g in best.given] == [
        ("w", "parameter"),
        ("x", "input"),
        ("v", "input"),
    ]
    assert fill_of(best, "w") == fill_of(best, "v") == Constant(1.0)
    assert questions <= 7


def test_weight_keeps_relevant_values_as_an_input() -> None:
    program = listing(LINEAR, saved("w", 8, 8), saved("v", 8), given("x", drawn(4, 8)))
    best, questions = searched(program, lambda p: fill_of(p, "w") == Saved("w"))
    assert best.weights == ()
    assert (fill_of(best, "w"), fill_of(best, "v")) == (Saved("w"), Constant(1.0))
    assert questions <= 9


def test_weights_of_equal_type_are_merged() -> None:
    text = "add = aten.add.Tensor(self.w, self.v)\nreturn add"
    program = listing(text, saved("w", 8), saved("v", 8))
    best, questions = searched(
        program, lambda p: {g.kind for g in p.given} == {"parameter"}
    )
    assert best.main.statements[0].code == "torch.ops.aten.add.Tensor(self.w, self.w)"
    assert fill_of(best, "w") == Constant(1.0)
    assert questions <= 8


def test_weight_operand_is_replaced_by_the_preceding_weight() -> None:
    text = "add = aten.add.Tensor(self.w, self.v)\nreturn add"
    edits = list(
        SimplifyWeights().propose(view(listing(text, saved("w", 8), saved("v", 8))))
    )
    assert Rewrite((Write(MAIN, "add", 1, "self.w"),)) in edits
    first = [c for n in "wv" for c in (Convert(n, "input"), Refill(n, Constant(1.0)))]
    assert edits[0] == Rewrite((*first,))


def test_script_objects_are_not_changed() -> None:
    held = given("w", TensorSpec((), "", Opaque("script_object('')")), "script_object")
    program = listing(MM, held, given("x", drawn(4, 4)))
    assert list(SimplifyWeights().propose(view(program))) == []


def test_one_relevant_weight_of_many_is_kept() -> None:
    names = [f"w{n}" for n in range(16)]
    lines = [f"n{i} = aten.add.Tensor(x, self.{w})" for i, w in enumerate(names)]
    text = "\n".join([*lines, f"return ({', '.join(f'n{i}' for i in range(16))},)"])
    held = [saved(name, n + 1) for n, name in enumerate(names)]
    program = listing(text, *held, given("x", drawn(4)))
    best, questions = searched(program, lambda p: p.find("w11").kind == "parameter")
    assert [w.name for w in best.weights] == ["w11"]
    assert {fill_of(best, name) for name in names} == {Constant(1.0)}
    assert questions <= 16
