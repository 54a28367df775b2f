"""A program that was not compiled for its inputs: by a server that is made up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.doubles import Arguments, FakeServer

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.explain.cause import Shown, explain
from shrinkfx.explain.inputs import unfit_inputs
from shrinkfx.explain.minimum import Minimum
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.program.listing.listing import Listing, Run
from shrinkfx.program.listing.recipes import Recipe, Seeded
from shrinkfx.protocol.answers import Checked, Difference, Ending, Raised
from shrinkfx.testing.listings import listed, listing

DRAWN = Seeded("randn")
EXPORTED = Recipe((2, 3), "float32", DRAWN)
TURNED = replace(EXPORTED, stride=(1, 2))
LONGER = replace(EXPORTED, shape=(9, 3))
TARGET = Signature(Kind.MISMATCH, Stage.COMPARE)

FAILS = Ending("exit", stage="done", answer=Checked(Difference("values", "w")))
PASSES = Ending("exit", stage="done", answer=Checked())
REFUSES = Ending(
    "exit",
    stage="run",
    answer=Raised(
        "RuntimeError",
        "input_handles[0]: unmatched stride value at 0, expected: 3, but got: 1",
    ),
)


def called_with(failing: Recipe) -> Listing:
    """Make a program that is exported with one input, and fails on another."""
    made = listing("y = torch.ops.aten.mul.Tensor(x, 2)\nreturn (y,)", x=EXPORTED)
    return made.with_given(made.find("x").with_recipe(Run.FAILING, failing))


def minimum(server: FakeServer, failing: Recipe = TURNED) -> Minimum:
    client = CheckClient(server, Limits(10.0, 1 << 30))
    return Minimum(client, listed(called_with(failing)), TARGET)


def compiled(checked: Ending = REFUSES, fitting: Ending = PASSES) -> FakeServer:
    """Answer as a compiled program does that takes its inputs for what they are not."""

    def answer(asked: Arguments) -> Ending:
        (x,) = asked["candidate"]["listing"]["given"]
        if len(x["recipes"]) == 1:
            return fitting
        return checked if asked["sanity"] else FAILS

    return FakeServer(answer)


def test_inputs_that_it_was_not_compiled_for_are_at_fault_and_no_operator() -> None:
    found = explain(minimum(compiled()), Shown())
    assert found.cause == (
        "The program was not compiled for its inputs: x has strides [1, 2], and was "
        "exported with [3, 1]. AOTI_RUNTIME_CHECK_INPUTS=1 refuses them "
        "(input_handles[0]: unmatched stride value at 0, expected: 3, but got: 1); "
        "with inputs of the exported sizes and strides it passes.",
    )
    assert found.guilty == ()
    assert found.is_settled
    longer = unfit_inputs(minimum(compiled(), LONGER))
    assert "x has shape [9, 3], and was exported with [2, 3]." in longer


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
def test_inputs_that_it_takes_or_that_make_no_difference_are_not_blamed(
    server: FakeServer, asked: int
) -> None:
    assert unfit_inputs(minimum(server)) == ""
    assert len(server.asked) == asked


def test_nothing_is_asked_where_it_fails_on_what_it_was_exported_with() -> None:
    server = compiled()
    assert unfit_inputs(minimum(server, EXPORTED)) == ""
    other = minimum(server)
    refused = replace(other, target=Signature(Kind.CHECK_INPUTS, Stage.RUN))
    assert unfit_inputs(refused) == ""
    assert (
        unfit_inputs(replace(other, target=Signature(Kind.CRASH, Stage.COMPILE))) == ""
    )
    assert not server.asked
