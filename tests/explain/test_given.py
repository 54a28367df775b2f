"""What dies of a wrong value, and who has made that: by a server that is made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.doubles import Arguments, FakeServer
from support.lies import lie, tensor

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.explain.cause import KnownFacts, explain, find_wrong_input
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.record import Outcome
from shrinkfx.program.candidate import Outputs
from shrinkfx.program.listing.printed_program import cut_before
from shrinkfx.program.skeleton import Role
from shrinkfx.protocol.answers import Checked, Difference, Ending, Raised, Ready
from shrinkfx.protocol.choices import Backend, Probe
from shrinkfx.protocol.kernel_values import Computed, KernelValues, Wrong
from shrinkfx.testing import chain, feed, skeleton, whole
from shrinkfx.testing.listings import listed, listing

PROGRAM = whole(chain("x", "relu", "tanh", "cos", "sin"))
REFUSED = Signature(Kind.EXCEPTION, Stage.RUN, "RuntimeError: refused")
WRONG = Wrong(wrong=6, of=6, first=(0,), got="10", expected="9", largest=1.0)
ERRS = Computed("cpp_0", 1, "buf0", ("tanh",), ("aten.tanh.default",), wrong=WRONG)
WRONG_BEFORE = KernelValues(("cpp_0",), (ERRS,), graph_agrees=True)

RAISES = Ending("exit", stage="run", answer=Raised("RuntimeError", "refused"))
FAILS = Ending("exit", stage="done", answer=Checked(Difference("values", "w")))
PASSES = Ending("exit", stage="done", answer=Checked())


class Server(FakeServer):
    """Dies of ``sin``; what ``sin`` is given is wrong, or is not."""

    def __init__(self, before: Ending, told: KernelValues = WRONG_BEFORE) -> None:
        def answer(asked: Arguments) -> Ending:
            if "sin" in asked["candidate"]["keep"]:
                return RAISES
            Path(asked["values"]).write_text(told.to_line())
            return before

        super().__init__(answer)

    def minimum(self, target: Signature = REFUSED) -> ReducedProgram:
        client = CheckClient(self, Limits(10.0, 1 << 30))
        return ReducedProgram(client, PROGRAM, target)


def test_crashing_operator_is_removed_to_compare_its_inputs() -> None:
    server = Server(FAILS)
    found = find_wrong_input(server.minimum(), {"sin"})
    assert found is not None
    assert [one.name for one in found.culprits] == ["tanh"]
    assert [one.name for one in found.without] == ["sin"]
    (asked,) = server.arguments
    assert asked["candidate"]["keep"] == ["relu", "tanh", "cos"]


def test_printed_program_is_cut_before_the_crashing_operator() -> None:
    program = listed(
        listing(
            """
            topk = torch.ops.aten.topk.default(x, 2)
            topk_0 = topk[0]
            topk_1 = topk[1]
            cos = torch.ops.aten.cos.default(topk_0)
            sin = torch.ops.aten.sin.default(cos, topk_1, x.shape[0])
            exp = torch.ops.aten.exp.default(sin)
            return (exp, cos)
            """
        )
    )
    server = Server(FAILS)
    assert (
        find_wrong_input(replace(server.minimum(), candidate=program), {"sin"})
        is not None
    )
    (block,) = server.arguments[0]["candidate"]["listing"]["blocks"]
    names = [name for name, *_ in block["statements"]]
    assert names == ["topk", "topk_0", "topk_1", "cos", "return"]
    assert block["statements"][-1][1] == "(topk_1, cos)"
    assert (
        find_wrong_input(replace(server.minimum(), candidate=program), {"topk"}) is None
    )


def test_tensor_behind_a_size_operand_is_returned_after_the_cut() -> None:
    program = listing(
        """
        relu = torch.ops.aten.relu.default(x)
        item = torch.ops.aten.item.default(x)
        size = relu.shape[0]
        twice = 2 * size
        dies = torch.ops.aten.full.default([twice, item], 1)
        return (dies,)
        """
    )
    assert cut_before(program, {"dies"}).main.statements[-1].code == "(relu,)"


def test_items_of_a_list_operand_are_returned_after_the_cut() -> None:
    program = listing(
        """
        split = torch.ops.aten.split.Tensor(x, 1)
        first = split[0]
        cat = torch.ops.aten.cat.default(split)
        return (cat, first)
        """
    )
    assert cut_before(program, {"cat"}).main.statements[-1].code == "(first,)"


def test_last_operator_of_a_crashing_or_unknown_kernel_is_removed() -> None:
    for dying in ({"cos", "sin"}, set[str]()):
        server = Server(FAILS)
        assert find_wrong_input(server.minimum(), dying) is not None
        assert server.arguments[0]["candidate"]["keep"] == ["relu", "tanh", "cos"]


@pytest.mark.parametrize(
    "server",
    [Server(PASSES), Server(RAISES), Server(FAILS, replace(WRONG_BEFORE, tiny=True))],
)
def test_no_wrong_input_is_reported_if_inputs_are_right(server: Server) -> None:
    assert find_wrong_input(server.minimum(), {"sin"}) is None


@pytest.mark.parametrize(("calls", "cause"), [(1, "fails alone"), (2, "a buffer")])
def test_write_is_blamed_only_if_a_later_call_fails(calls: int, cause: str) -> None:
    server = FakeServer(lambda asked: FAILS)
    counts = skeleton(
        {"steps": feed(Role.BUFFER), "add": "steps"}, "add", [("add", "steps")]
    )
    candidate = replace(whole(counts), outputs=Outputs.ORIGINAL)
    client = CheckClient(server, Limits(10.0, 1 << 30)).with_options(calls=calls)
    target = Signature(Kind.MISMATCH, Stage.COMPARE)
    found = explain(ReducedProgram(client, candidate, target), KnownFacts())
    assert [one.name for one in found.culprits] == ["add"] * (calls == 1)
    assert cause in found.cause[0]


def test_no_query_is_made_if_inputs_cannot_be_compared() -> None:
    server = Server(FAILS)
    compiling = Signature(Kind.EXCEPTION, Stage.COMPILE, "RuntimeError: refused")
    assert find_wrong_input(server.minimum(compiling), {"sin"}) is None
    assert (
        find_wrong_input(server.minimum(Signature(Kind.HANG, Stage.RUN)), {"sin"})
        is None
    )
    minimum = server.minimum()
    eager_fails = minimum.client.with_options(reference=False)
    assert find_wrong_input(minimum.with_client(eager_fails), {"sin"}) is None
    at_compile = minimum.client.with_options(probe=Probe.HINTS)
    assert find_wrong_input(minimum.with_client(at_compile), {"sin"}) is None
    assert find_wrong_input(server.minimum(), {"relu"}) is None  # it is given an input
    assert not server.asked


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        *((RAISES, Outcome.SAME), (FAILS, Outcome.OTHER), (PASSES, Outcome.PASSES)),
        *((Ending("timeout", stage="run"), Outcome.OPEN),),
    ],
)
def test_program_is_compiled_with_torch_compile_as_well(
    ending: Ending, outcome: Outcome
) -> None:
    def answer(asked: Arguments) -> Ending:
        return ending if asked.get("torch_compile") else RAISES

    client = CheckClient(FakeServer(answer), Limits(10.0, 1 << 30))
    reduced = ReducedProgram(client, PROGRAM, REFUSED)
    assert explain(reduced, KnownFacts()).torch_compile is outcome
    is_flaky = outcome is Outcome.PASSES
    flaky = explain(replace(reduced, rate=0.5), KnownFacts()).torch_compile
    assert flaky is (Outcome.OPEN if is_flaky else outcome)


def test_other_difference_with_torch_compile_is_another_failure() -> None:
    def answer(asked: Arguments) -> Ending:
        what = "shape" if asked.get("torch_compile") else "values"
        return Ending("exit", stage="done", answer=Checked(Difference(what, "w")))

    client = CheckClient(FakeServer(answer), Limits(10.0, 1 << 30))
    target = Signature(Kind.MISMATCH, Stage.COMPARE, differs="values")
    found = explain(ReducedProgram(client, PROGRAM, target), KnownFacts())
    assert found.torch_compile is Outcome.OTHER


@pytest.mark.parametrize("kind", [Kind.CHECK_INPUTS, Kind.LOAD_ERROR, Kind.HANG, None])
def test_torch_compile_is_not_run_if_that_says_nothing(kind: Kind | None) -> None:
    server = FakeServer(RAISES)
    if kind is None:
        server.ready = Ready(backend=Backend.INDUCTOR)
    client = CheckClient(server, Limits(10.0, 1 << 30))
    target = Signature(kind, Stage.RUN) if kind else REFUSED
    found = explain(ReducedProgram(client, PROGRAM, target), KnownFacts())
    assert found.torch_compile is Outcome.NOT_TESTED
    assert not any("torch_compile" in asked for asked in server.arguments)


def test_producer_of_a_wrong_input_is_culprit_of_a_later_error() -> None:
    found = explain(Server(FAILS).minimum(), KnownFacts())
    assert [one.name for one in found.culprits] == ["tanh"]
    assert found.cause == (
        "Kernel cpp_0 computes a wrong result of aten.tanh.default: its inputs agree "
        "with eager, but 6 of 6 values of its result do not (largest error 1). This "
        "was measured in the program without aten.sin.default, which ends normally.",
        "The first wrong value is 10 at [0], where eager gives 9.",
    )


def test_failure_with_right_inputs_is_explained_without_values() -> None:
    found = explain(Server(PASSES).minimum(), KnownFacts())
    assert found.culprits == ()
    assert found.cause == ("The run fails: refused.",)
    assert found.values is None


def test_fake_kernel_mismatch_is_the_cause_of_a_later_crash() -> None:
    lies = {"relu": lie("relu", tensor("int32", 6), tensor("int64", 6))}
    found = explain(Server(FAILS).minimum(), KnownFacts(mismatches=lies))
    assert [one.name for one in found.culprits] == ["relu"]
    assert "Fake-kernel mismatch" in found.cause[0]
    assert "first wrong values are in the result of aten.tanh.default" in found.cause[1]
