"""From what kernels have made to the operators at fault, on tables that are made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import Arguments, FakeServer

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.explain.values import find_first_wrong, values
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.record import Explanation
from shrinkfx.findings.values import WrongValue
from shrinkfx.protocol.answers import Checked, Difference, Ending
from shrinkfx.protocol.kernel_values import Computed, KernelValues, Wrong
from shrinkfx.testing import chain, whole

PROGRAM = whole(chain("x", "relu", "tanh", "cos", "sin"))
WRONG = Wrong(
    wrong=12,
    of=64,
    first=(1, 0),
    got="3.5",
    expected="3.0",
    largest=0.5,
    relative=0.2,
    ulps=40.0,
    exact="eager",
)
TARGET = Signature(Kind.MISMATCH, Stage.COMPARE)
FAILS = Ending("exit", stage="done", answer=Checked(Difference("values", "w")))
PASSES = Ending("exit", stage="done", answer=Checked())


def computed_value(
    launch: int, operators: str, wrong: Wrong | None = None, given_wrong: str = ""
) -> Computed:
    """Make a value of a kernel that computes operators of the chain."""
    names = tuple(operators.split())
    return Computed(
        kernel=f"cpp_{launch - 1}" if launch else "",
        launch=launch,
        value=f"buf{launch}" if launch else "result 0",
        operators=names,
        calls=tuple(f"aten.{name}.default" for name in names),
        wrong_sources=tuple(given_wrong.split()),
        wrong=wrong,
    )


def kernel_values(*computed: Computed, **changes: object) -> KernelValues:
    launches = ("cpp_0", "cpp_1", "cpp_2")
    return replace(KernelValues(launches, computed, graph_agrees=True), **changes)  # type: ignore[arg-type]


RELU, FAULTY = computed_value(1, "relu"), computed_value(1, "relu", WRONG)
TANH = computed_value(2, "tanh", WRONG)
RANDOM = replace(RELU, unknown="it depends on random numbers")
REWRITTEN: dict[str, Any] = {"graph_agrees": False, "rewritten_wrong": WRONG}
NANS = replace(WRONG, wrong=4, nans=4, largest=None, ulps=None, exact="")

TABLES = {
    "the second kernel is wrong, and the third shows it": kernel_values(
        RELU, TANH, computed_value(3, "cos sin", None, "tanh")
    ),
    "an input is wrong": kernel_values(replace(TANH, wrong_sources=("relu",))),
    "an input is random": kernel_values(replace(TANH, random_sources=("relu",))),
    "a wrong kernel in a changed graph": kernel_values(TANH, rewritten="relu"),
    "an operator is rewritten": kernel_values(RELU, rewritten="cos", **REWRITTEN),
    "an operator is decomposed wrongly": kernel_values(
        rewritten="cos", decomposition="torch/_refs/__init__.py:cos", **REWRITTEN
    ),
    "an operator is decomposed, and float64 confirms no result": kernel_values(
        rewritten="cos",
        decomposition="torch/_refs/__init__.py:cos",
        graph_agrees=False,
        rewritten_wrong=replace(WRONG, exact=""),
    ),
    "a write is lost": kernel_values(RELU, lost="cos", **REWRITTEN),
    "functionalization is wrong": kernel_values(
        RELU, functionalized=("tanh", "cos"), **REWRITTEN
    ),
    "an unknown rewrite": kernel_values(RELU, **REWRITTEN),
    "no result": kernel_values(unknown="it returned no result"),
    "all values are right": kernel_values(RELU),
    "rounding is amplified": kernel_values(
        computed_value(2, "relu"), replace(computed_value(3, "tanh"), amplified=WRONG)
    ),
    "a value cannot be computed in eager": kernel_values(RANDOM),
    "a later call": kernel_values(RELU, call=2, graph_agrees=None),
    "a tiny error": kernel_values(FAULTY, tiny=True),
    "a tiny error, but a rewrite": kernel_values(
        FAULTY, tiny=True, rewritten="cos", **REWRITTEN
    ),
    "a tiny error, but an unknown value": kernel_values(
        FAULTY, replace(RANDOM, operators=("cos",)), tiny=True
    ),
    "an unknown value before": kernel_values(RANDOM, TANH),
    "another dtype": kernel_values(
        replace(
            FAULTY,
            wrong=Wrong(metadata="the result has dtype int64 instead of int8"),
        )
    ),
    "NaN": kernel_values(replace(FAULTY, wrong=NANS)),
    "zero in eager, in the only kernel of torch.compile": kernel_values(
        replace(FAULTY, kernel="kernel", wrong=replace(WRONG, relative=1.0, ulps=7e44))
    ),
}


class Server(FakeServer):
    """Leaves one table of values after the other."""

    def __init__(self, *told: tuple[KernelValues | None, Ending]) -> None:
        tables = iter(told)

        def answer(arguments: Arguments) -> Ending:
            table, ending = next(tables)
            if table is not None:
                Path(arguments["values"]).write_text(table.to_line())
            return ending

        super().__init__(answer)


def ask(
    *answers: tuple[KernelValues | None, Ending],
    target: Signature = TARGET,
    rate: float = 1.0,
) -> tuple[WrongValue, Server]:
    server = Server(*answers)
    client = CheckClient(server, Limits(10.0, 1 << 30))
    found = values(ReducedProgram(client, PROGRAM, target, rate=rate))
    assert found is not None
    return found, server


FUSED = kernel_values(computed_value(1, "relu tanh cos", WRONG))
SEEN = kernel_values(RELU, replace(TANH, launch=1), computed_value(1, "cos"))
LATE = Ending("timeout")

ANSWERS: dict[str, tuple[list[tuple[KernelValues | None, Ending]], float]] = {
    "a kernel of one operator": ([(kernel_values(TANH), FAILS)], 1.0),
    "the instrumented run passes": ([(kernel_values(TANH), PASSES)], 1.0),
    "the second operator is wrong": ([(FUSED, FAILS), (SEEN, FAILS), (None, FAILS)], 1),
    "the first operator is wrong": (
        [(FUSED, FAILS), (kernel_values(FAULTY, computed_value(1, "cos")), FAILS)],
        1.0,
    ),
    "without fusion, it passes": ([(FUSED, FAILS), (SEEN, FAILS), (None, PASSES)], 1),
    "without fusion, time is out": ([(FUSED, FAILS), (SEEN, FAILS), (None, LATE)], 1),
    "with values returned, it passes": (
        [(FUSED, FAILS), (kernel_values(RELU), PASSES)],
        1.0,
    ),
    "with values returned, time is out": ([(FUSED, FAILS), (None, LATE)], 1.0),
    "a flaky program fails": ([(FUSED, FAILS), (SEEN, FAILS)], 0.5),
    "a flaky program passes": ([(FUSED, FAILS), *[(None, PASSES)] * 10], 0.5),
}


def as_text(name: str, found: WrongValue, *more: str) -> str:
    lines = [f"# {name}", f"culprits: {', '.join(one.name for one in found.culprits)}"]
    lines += [f"cause: {sentence}" for sentence in found.cause]
    return "\n".join([*lines, *(f"unknown: {why}" for why in found.unknown), *more])


def all_texts() -> str:
    texts = [as_text(n, find_first_wrong(PROGRAM, t)) for n, t in TABLES.items()]
    for name, (answers, rate) in ANSWERS.items():
        found, server = ask(*answers, rate=rate)
        texts.append(as_text(name, found, f"queries: {len(server.asked)}"))
    return "\n\n".join(texts) + "\n"


def test_wrong_values_match_the_golden_file() -> None:
    """Read it in one go, and record it again where it is to change."""
    golden = Path(__file__).parents[1] / "golden" / "wrong_values.txt"
    assert all_texts() == golden.read_text()


def test_operators_are_separated_by_returned_values_and_without_fusion() -> None:
    _, server = ask((FUSED, FAILS), (SEEN, FAILS), (None, FAILS))
    assert server.arguments[1]["taps"] == ("relu", "tanh", "cos")
    assert server.arguments[2]["inductor"]["max_fusion_size"] == 1


def test_first_wrong_value_is_omitted_if_the_failure_message_has_it() -> None:
    wrong, _ = ask((kernel_values(computed_value(2, "tanh", WRONG)), FAILS))
    assert (
        "The first wrong value is 3.5 at [1, 0], where eager gives 3.0." in wrong.cause
    )
    said = (
        "output 0: 12 of 64 elements differ, the first at [1, 0]: 3.5, eager gives 3.0"
    )
    named, _ = ask(
        (kernel_values(computed_value(2, "tanh", WRONG)), FAILS),
        target=replace(TARGET, text=said),
    )
    assert named.cause == wrong.cause[:1]


def test_wrong_values_are_not_searched_for_a_crash() -> None:
    client = CheckClient(FakeServer(FAILS), Limits(10.0, 1 << 30))
    crash = Signature(Kind.CRASH, Stage.RUN)
    assert values(ReducedProgram(client, PROGRAM, crash)) is None


def test_explanation_round_trips_through_json() -> None:
    found = find_first_wrong(PROGRAM, kernel_values(computed_value(1, "relu", WRONG)))
    written = Explanation(values=found)
    assert Explanation.from_line(written.to_line()) == written


@pytest.mark.parametrize(
    ("call", "lines", "is_quoted"),
    [
        ("aten.cos.default", 2, True),
        ("aten.exp.default", 2, True),
        ("mine.scale.default", 2, False),
        ("aten.cos.default", 31, False),
    ],
)
def test_short_graph_without_other_custom_operators_is_quoted(
    call: str, lines: int, *, is_quoted: bool
) -> None:
    graph = "\n".join([f"    cos = torch.ops.{call}(x)"] * lines)
    table = kernel_values(rewritten="cos", graph=graph, **REWRITTEN)
    code = find_first_wrong(PROGRAM, table).code
    assert [line.text for line in code] == graph.splitlines() * is_quoted
