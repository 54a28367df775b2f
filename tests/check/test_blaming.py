"""What is asked, and how often, until a failure can be blamed on an operator."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from support.doubles import Arguments, FakeServer, Minutes

from shrinkfx.check.localise import collect_evidence
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import BudgetExhausted
from shrinkfx.failure.blame import Evidence, rank_suspects
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Node, Role, TensorType
from shrinkfx.protocol.answers import Checked, Difference, Ending
from shrinkfx.protocol.files import Launch
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.testing import chain, skeleton, whole

PROGRAM = whole(chain("x", "relu", "tanh", "cos", "sin", "exp"))
FAULT = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT)
WRONG = Signature(Kind.MISMATCH, Stage.COMPARE)
BUILD = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "no")
PRINTED = Ending("signal", signal.SIGSEGV, "run", log="[ before_launch: cpp_1 ]\n")
KNOWN = Evidence((Launch("cpp_0", ("relu",)), Launch("cpp_1", ("tanh", "cos"))))


def blamed(
    server: FakeServer,
    target: Signature,
    known: Evidence = KNOWN,
    program: Candidate = PROGRAM,
    **options: Any,
) -> list[str]:
    """Name the surest suspects after the interrogation."""
    compiler = CheckClient(server, Limits(10.0, 1 << 30), CheckOptions(**options))
    evidence = collect_evidence(compiler, program, target, known, lambda _: None)
    found = rank_suspects(evidence, program.skeleton, target)
    return [s.node for s in found if s.weight == found[0].weight]


def differ(
    wrong: Sequence[str], unless: Sequence[str] = (), output: str = "exp"
) -> Callable[[Arguments], Ending]:
    """Answer which values differ; the failure hides where one of some is returned."""

    def answer(arguments: Arguments) -> Ending:
        taps = arguments["taps"]
        seen = [name for name in (*taps, output) if name in wrong]
        if not seen or set(unless) & set(taps):
            return Ending("exit", stage="done")
        told = Checked(Difference("values", "w"), tuple(seen))
        return Ending("exit", stage="done", answer=told)

    return answer


def localizing_notes(left: float, target: Signature, seconds: float) -> list[str]:
    """Interrogate within so many seconds; return what was said of that."""
    notes: list[str] = []
    server = FakeServer(lambda _: PRINTED)
    compiler = CheckClient(server, Limits(600.0, 1 << 30))
    asked = compiler, PROGRAM, target, Evidence(), notes.append
    collect_evidence(*asked, seconds, Minutes(left))
    assert bool(server.asked) is not any("not enough time left" in n for n in notes)
    return notes


def test_localizing_is_skipped_beyond_a_quarter_of_the_time_limit() -> None:
    for target in (FAULT, WRONG):
        assert len(localizing_notes(79.0, target, 20.0)) == 1
        (short,) = localizing_notes(79.0, target, 20.0)
        assert short.startswith("localizing: not enough time left, skipped ")
        assert not any("short" in note for note in localizing_notes(81.0, target, 20.0))


def test_evidence_collection_ends_with_its_share_of_the_time_limit() -> None:
    class Watching(FakeServer):
        def ask(self, request: Request) -> Ending:
            limits.append(request.wall_clock_limit_s)
            raise BudgetExhausted("time limit reached")

    limits: list[float] = []
    compiler = CheckClient(Watching(lambda _: PRINTED), Limits(600.0, 1 << 30))
    asked = compiler, PROGRAM, FAULT, Evidence(), lambda _: None
    assert collect_evidence(*asked, 20.0, Minutes(100.0)) == Evidence()
    assert limits == [25.0]


def test_crash_without_a_message_is_rerun_once_with_printed_launches() -> None:
    server = FakeServer(lambda _: PRINTED)
    assert blamed(server, FAULT, inductor={"inplace_buffers": False}) == ["tanh", "cos"]
    (asked,) = server.arguments
    assert asked["inductor"] == {
        "inplace_buffers": False,
        "aot_inductor.debug_intermediate_value_printer": "3",
    }


def test_known_culprit_needs_no_further_compilation() -> None:
    server = FakeServer(lambda _: PRINTED)
    blamed(server, FAULT, replace(KNOWN, text="Exception raised from cpp_0"))
    blamed(server, FAULT, replace(KNOWN, mismatched=("sin",)))
    blamed(server, BUILD)
    blamed(server, FAULT, probe="real")  # the interpreter prints no launches
    assert server.asked == []


def test_different_crash_yields_no_suspect() -> None:
    server = FakeServer(lambda _: replace(PRINTED, stage="compile"))
    assert blamed(server, FAULT) == []


def test_mismatch_is_traced_with_one_compilation() -> None:
    server = FakeServer(differ(["cos", "sin", "exp"]))
    assert blamed(server, WRONG) == ["cos"]
    (asked,) = server.arguments
    assert asked["taps"] == ("relu", "tanh", "cos", "sin", "exp")


def test_mismatch_hidden_by_taps_is_traced_with_fewer_taps() -> None:
    # Returned, tanh is no longer fused with cos.
    server = FakeServer(differ(["cos", "sin", "exp"], unless=["tanh"]))
    assert blamed(server, WRONG) == ["tanh", "cos"]
    assert server.arguments[1]["taps"] == ("relu", "cos", "exp")


def test_tap_inside_a_fused_culprit_is_not_queried_twice() -> None:
    # A pattern that is fused as a whole: each of its inner values hides it.
    server = FakeServer(differ(["sin", "exp"], unless=["cos"]))
    assert blamed(server, WRONG) == ["cos", "sin"]
    assert server.arguments[2]["taps"] == ("tanh", "sin")


def test_matching_output_clears_its_ancestors() -> None:
    program = skeleton(
        {
            "x": "",
            "relu": "x",
            "tanh": "relu",
            "abs": "tanh",
            "cos": "tanh",
            **{"sin": "cos", "exp": "sin", "erf": "exp", "atan": "erf", "log": "atan"},
        }
    )
    wrong = ["cos", "sin", "exp", "erf", "atan", "log"]
    server = FakeServer(differ(wrong, ["tanh"], "log"))
    assert blamed(server, WRONG, program=whole(program)) == ["cos"]
    assert server.arguments[1]["taps"] == ("relu", "cos", "erf")


def test_different_wrong_result_yields_no_suspect() -> None:
    server = FakeServer(differ(["cos", "sin", "exp"]))
    assert blamed(server, Signature(Kind.NAN, Stage.COMPARE)) == []


def test_mismatch_hidden_by_every_tap_yields_no_suspect() -> None:
    server = FakeServer(lambda _: Ending("exit", stage="done"))
    assert blamed(server, WRONG) == []
    assert len(server.asked) == 3


def test_mismatch_of_a_small_program_is_queried_once() -> None:
    server = FakeServer(lambda _: Ending("exit", stage="done"))
    assert blamed(server, WRONG, program=whole(chain("x", "relu", "tanh"))) == []
    assert len(server.asked) == 1


def test_taps_that_exceed_the_memory_are_split() -> None:
    # Of large values, all are too many and some are not.
    large = TensorType("float32", ("8", "1024", "1024"))
    names = ["x", *(f"relu_{n}" for n in range(9))]
    nodes = {"x": Node("", Role.INPUT, value=large)}
    for before, name in itertools.pairwise(names):
        node = Node("", Role.OPERATOR, name, (before,), large)
        nodes[name] = replace(node, nbytes=32 << 20)
    server = FakeServer(lambda _: Ending("exit", stage="done"))
    blamed(server, WRONG, program=whole(skeleton(nodes)))
    assert [asked["taps"] for asked in server.arguments] == [
        ("relu_0", "relu_3", "relu_6"),
        ("relu_1", "relu_4", "relu_7"),
    ]


def repeated_layers(fourth: str = "tanh") -> Candidate:
    """Return twelve layers of relu and tanh; the fourth one calls another operator."""
    small = TensorType("float32", ("4",))
    nodes, before = {"x": Node("", Role.INPUT, value=small)}, "x"
    for layer in range(12):
        for name in ("relu", fourth if layer == 3 else "tanh"):
            operands, before = (before,), f"{name}_{layer}"
            nodes[before] = Node("", Role.OPERATOR, name, operands, small)
    return whole(skeleton(nodes))


def test_first_of_equal_layers_is_compared_before_the_program() -> None:
    server = FakeServer(differ(["cos_3", "relu_4", "tanh_4"], output="tanh_11"))
    assert blamed(server, WRONG, program=repeated_layers("cos")) == ["cos_3"]
    (asked,) = server.arguments
    layers = ["relu_0", "tanh_0", "relu_1", "tanh_1", "relu_2"]
    assert asked["taps"] == (*layers, "cos_3", "relu_4", "tanh_4", "relu_5")
    assert asked["candidate"]["keep"] == list(asked["taps"])


def test_values_of_all_layers_are_compared_if_the_first_is_right() -> None:
    server = FakeServer(differ(["tanh_5", "relu_6"], output="tanh_11"))
    assert blamed(server, WRONG, program=repeated_layers()) == ["tanh_5"]
    first, second = server.arguments
    assert first["taps"] == ("relu_0", "tanh_0", "relu_1", "tanh_1", "relu_2")
    assert len(second["taps"]) == 24


@pytest.mark.parametrize("role", [Role.PARAMETER, Role.INPUT])
def test_views_of_weights_are_omitted_if_all_values_exceed_the_memory(
    role: Role,
) -> None:
    small = TensorType("float32", ("4",))
    operands = {
        "t": ("weight",),
        "relu": ("x",),
        "mm": ("relu", "t"),
        "cos": ("mm",),
    }
    nodes = {
        "x": Node("", Role.INPUT, value=small),
        "weight": Node("", role, value=small, nbytes=1 << 30),
    }
    for name, names in operands.items():
        nbytes = 1 << 30 if name == "t" else 16
        operator = Node("", Role.OPERATOR, f"aten.{name}.default", operands=names)
        nodes[name] = replace(operator, value=small, nbytes=nbytes)
    server = FakeServer(differ(["mm", "cos"]))
    assert blamed(server, WRONG, program=whole(skeleton(nodes))) == ["mm"]
    assert [asked["taps"] for asked in server.arguments] == [("relu", "mm", "cos")]
