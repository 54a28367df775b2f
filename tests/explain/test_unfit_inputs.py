"""A program that was not compiled for its inputs: by a server that is made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.doubles import Arguments, FakeServer

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.explain.cause import KnownFacts, describe_rejected_input, explain
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.program.listing.printed_program import PrintedProgram, Run
from shrinkfx.program.listing.tensor_specs import Seeded, TensorSpec
from shrinkfx.protocol.answers import Checked, Difference, Ending, Raised
from shrinkfx.testing.listings import listed, listing

DRAWN = Seeded("randn")
EXPORTED = TensorSpec((2, 3), "float32", DRAWN)
TURNED = replace(EXPORTED, stride=(1, 2))
LONGER = replace(EXPORTED, shape=(9, 3))
TARGET = Signature(Kind.MISMATCH, Stage.COMPARE)

FAILS = Ending("exit", stage="done", answer=Checked(Difference("values", "w")))
PASSES = Ending("exit", stage="done", answer=Checked())
REFUSED = "input_handles[0]: unmatched stride value at 0, expected: 3, but got: 1"
REFUSES = Ending("exit", stage="run", answer=Raised("RuntimeError", REFUSED))


def called_with(failing: TensorSpec) -> PrintedProgram:
    """Make a program that is exported with one input, and fails on another."""
    made = listing("y = torch.ops.aten.mul.Tensor(x, 2)\nreturn (y,)", x=EXPORTED)
    return made.with_given(made.find("x").with_recipe(Run.FAILING, failing))


def minimum(server: FakeServer, failing: TensorSpec = TURNED) -> ReducedProgram:
    client = CheckClient(server, Limits(10.0, 1 << 30))
    return ReducedProgram(client, listed(called_with(failing)), TARGET)


def compiled(checked: Ending = REFUSES, fitting: Ending = PASSES) -> FakeServer:
    """Answer as a compiled program does that takes its inputs for what they are not."""

    def answer(asked: Arguments) -> Ending:
        (x,) = asked["candidate"]["listing"]["given"]
        if len(x["recipes"]) == 1:
            return fitting
        return checked if asked["sanity"] else FAILS

    return FakeServer(answer)


def test_inputs_unlike_the_exported_ones_are_at_fault_not_an_operator() -> None:
    found = explain(minimum(compiled()), KnownFacts())
    assert found.cause == (
        "Input x has strides [1, 2], but was exported with [3, 1]. With "
        "AOTI_RUNTIME_CHECK_INPUTS=1, the compiled program rejects the input "
        "(input_handles[0]: unmatched stride value at 0, expected: 3, but got: 1); "
        "with the exported strides, it passes.",
    )
    assert found.culprits == ()
    assert found.is_settled
    longer = describe_rejected_input(minimum(compiled(), LONGER))
    assert "x has shape [9, 3], but was exported with [2, 3]." in longer
    assert longer.endswith("; with the exported input, it passes.")
    owned = explain(minimum(compiled()), KnownFacts(own="The lowering is yours."))
    assert owned.cause == ("The lowering is yours.", *found.cause)


@pytest.mark.parametrize(
    ("server", "asked"),
    [
        (compiled(checked=FAILS), 1),
        (compiled(checked=PASSES), 1),
        (compiled(checked=Ending("timeout")), 1),
        (compiled(fitting=FAILS), 2),
        (compiled(fitting=Ending("timeout")), 2),
    ],
)
def test_inputs_are_not_blamed_if_accepted_or_irrelevant(
    server: FakeServer, asked: int
) -> None:
    assert describe_rejected_input(minimum(server)) == ""
    assert len(server.asked) == asked


def test_no_query_is_made_if_the_exported_inputs_fail() -> None:
    server = compiled()
    assert describe_rejected_input(minimum(server, EXPORTED)) == ""
    other = minimum(server)
    refused = replace(other, target=Signature(Kind.CHECK_INPUTS, Stage.RUN))
    assert describe_rejected_input(refused) == ""
    assert (
        describe_rejected_input(
            replace(other, target=Signature(Kind.CRASH, Stage.COMPILE))
        )
        == ""
    )
    assert not server.asked


def test_rejected_input_is_blamed_not_another_of_legal_size() -> None:
    text = "y = torch.ops.aten.cat.default([x, w])\nreturn (y,)"
    made = listing(text, x=EXPORTED, w=EXPORTED)
    made = made.with_given(made.find("x").with_recipe(Run.FAILING, LONGER))
    made = made.with_given(made.find("w").with_recipe(Run.FAILING, TURNED))
    rejects = replace(
        REFUSES, answer=Raised("RuntimeError", REFUSED.replace("[0]", "[1]"))
    )

    def answer(asked: Arguments) -> Ending:
        x, w = asked["candidate"]["listing"]["given"]
        assert len(x["recipes"]) == 2
        if len(w["recipes"]) == 1:
            return FAILS if fails_by_the_size else PASSES
        return rejects if asked["sanity"] else FAILS

    asked = replace(minimum(FakeServer(answer)), candidate=listed(made))
    fails_by_the_size = True
    assert describe_rejected_input(asked) == ""
    fails_by_the_size = False
    assert "w has strides [1, 2], but" in describe_rejected_input(asked)


def test_inputs_are_not_blamed_for_a_flaky_failure() -> None:
    assert describe_rejected_input(replace(minimum(compiled()), rate=0.5)) == ""
