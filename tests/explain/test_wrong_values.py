"""From what kernels have made to the operators at fault, on tables that are made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

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
    ulps=4e6,
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


def culprit_names(found: WrongValue) -> list[str]:
    return [operator.name for operator in found.culprits]


def test_first_wrong_kernel_is_culprit_not_a_later_one() -> None:
    found = find_first_wrong(
        PROGRAM,
        kernel_values(
            computed_value(1, "relu"),
            computed_value(2, "tanh", WRONG),
            computed_value(3, "cos sin", None, "tanh"),
        ),
    )
    assert culprit_names(found) == ["tanh"]
    assert found.cause == (
        "aten.tanh.default in kernel cpp_1 (launch 2 of 3) is wrong: its inputs agree "
        "with eager, but 12 of 64 values of its result do not (largest error 0.5, "
        "4e+06 ulps; a float64 run agrees with eager).",
        "The first wrong value is 3.5 at [1, 0], where eager gives 3.0.",
        "cpp_2 shows the error, and its result is right for its inputs.",
    )


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


def test_inputs_are_not_reported_to_agree_if_wrong_or_random() -> None:
    wrong = computed_value(2, "tanh", WRONG, given_wrong="relu")
    for table in (
        kernel_values(wrong),
        kernel_values(computed_value(2, "tanh", WRONG), rewritten="relu"),
    ):
        found = find_first_wrong(PROGRAM, table)
        assert "inputs agree" not in found.cause[0]
        assert "other values from them: 12 of 64 values differ" in found.cause[0]
    random = replace(computed_value(2, "tanh", WRONG), random_sources=("relu",))
    assert not find_first_wrong(PROGRAM, kernel_values(random)).agrees


def test_no_kernel_is_blamed_if_the_graph_was_rewritten() -> None:
    table = kernel_values(
        computed_value(1, "relu"), rewritten="cos", rewritten_wrong=WRONG
    )
    found = find_first_wrong(PROGRAM, replace(table, graph_agrees=False))
    assert culprit_names(found) == ["cos"]
    assert found.cause[0].endswith("no kernel is at fault.")
    assert "cpp_" not in " ".join(found.cause)


def test_lost_write_is_reported() -> None:
    table = kernel_values(
        computed_value(1, "relu"), graph_agrees=False, rewritten_wrong=WRONG, lost="cos"
    )
    found = find_first_wrong(PROGRAM, table)
    assert culprit_names(found) == ["cos"]
    assert found.cause[0].startswith(
        "The write of aten.cos.default is lost in the graph"
    )
    unknown = find_first_wrong(PROGRAM, replace(table, lost=""))
    assert unknown.culprits == ()
    assert unknown.cause[0].startswith(
        "The result of the program is computed differently"
    )
    assert unknown.unknown


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (kernel_values(unknown="it returned no result"), "it returned no result"),
        (
            kernel_values(computed_value(1, "relu")),
            "each value in memory agrees with eager",
        ),
        (
            kernel_values(replace(computed_value(1, "relu"), unknown="random numbers")),
            "random numbers",
        ),
        (
            kernel_values(computed_value(1, "relu"), call=2, graph_agrees=None),
            "could not be compared",
        ),
    ],
)
def test_unknown_wrong_value_has_a_reason_and_no_culprit(
    table: KernelValues, why: str
) -> None:
    found = find_first_wrong(PROGRAM, table)
    assert found.culprits == ()
    assert why in found.unknown[0]
    assert found.cause == ()


@pytest.mark.parametrize(
    "other",
    [
        kernel_values(
            computed_value(1, "relu", WRONG),
            tiny=True,
            graph_agrees=False,
            rewritten="cos",
            rewritten_wrong=WRONG,
        ),
        kernel_values(
            computed_value(1, "relu", WRONG),
            replace(computed_value(2, "cos"), unknown="random numbers"),
            tiny=True,
        ),
    ],
)
def test_tiny_error_is_not_the_cause_if_another_is_possible(
    other: KernelValues,
) -> None:
    assert "relu" not in culprit_names(find_first_wrong(PROGRAM, other))
    alone = find_first_wrong(
        PROGRAM, kernel_values(computed_value(1, "relu", WRONG), tiny=True)
    )
    assert culprit_names(alone) == ["relu"]
    assert alone.cause[1].endswith("eager gives 3.0; the error is below the tolerance.")


def test_unknown_values_of_earlier_kernels_are_reported() -> None:
    before = replace(computed_value(1, "relu"), unknown="it depends on random numbers")
    found = find_first_wrong(
        PROGRAM, kernel_values(before, computed_value(2, "tanh", WRONG))
    )
    assert found.unknown == ("kernel cpp_0: it depends on random numbers",)


def test_wrong_metadata_is_described() -> None:
    metadata = Wrong(metadata="its dtype is torch.int64, eager's torch.int8")
    found = find_first_wrong(
        PROGRAM, kernel_values(computed_value(1, "relu", metadata))
    )
    assert "its dtype is torch.int64, eager's torch.int8." in found.cause[0]
    assert len(found.cause) == 1


def test_nan_values_are_counted() -> None:
    nans = replace(WRONG, wrong=4, nans=4, largest=None, ulps=None, exact="")
    found = find_first_wrong(PROGRAM, kernel_values(computed_value(1, "relu", nans)))
    assert "4 of 64 values of its result do not, all NaN." in found.cause[0]


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


def test_single_operator_kernel_takes_one_query() -> None:
    found, server = ask((kernel_values(computed_value(1, "tanh", WRONG)), FAILS))
    assert culprit_names(found) == ["tanh"]
    assert len(server.asked) == 1


SEEN = kernel_values(
    computed_value(1, "relu"),
    computed_value(1, "tanh", WRONG),
    computed_value(1, "cos"),
)


def test_fused_operators_are_separated_by_their_values() -> None:
    found, server = ask((FUSED, FAILS), (SEEN, FAILS), (None, FAILS))
    assert culprit_names(found) == ["tanh"]
    assert found.separated
    assert server.arguments[1]["taps"] == ("relu", "tanh", "cos")
    assert server.arguments[2]["inductor"]["max_fusion_size"] == 1


def test_first_operator_of_a_kernel_is_culprit_without_a_fusion_query() -> None:
    seen = kernel_values(
        computed_value(1, "relu", WRONG),
        computed_value(1, "tanh"),
        computed_value(1, "cos"),
    )
    found, server = ask((FUSED, FAILS), (seen, FAILS))
    assert culprit_names(found) == ["relu"]
    assert len(server.asked) == 2


def test_operators_failing_only_when_fused_are_named_together() -> None:
    found, _ = ask((FUSED, FAILS), (SEEN, FAILS), (None, PASSES))
    assert culprit_names(found) == ["relu", "tanh"]
    assert found.cause[:2] == (
        "aten.relu.default and aten.tanh.default, fused in kernel cpp_0 (launch 1 of "
        "3), give a wrong result: their inputs agree with eager, but 12 of 64 values "
        "of its result do not (largest error 0.5, 4e+06 ulps; a float64 run agrees "
        "with eager). This was measured with a kernel that also returns its "
        "intermediate values.",
        "The program passes when it also returns inner values and nothing is fused.",
    )


def test_fusion_is_not_blamed_if_a_flaky_program_passes() -> None:
    alone, _ = ask((FUSED, FAILS), (SEEN, FAILS), rate=0.5)
    assert culprit_names(alone) == ["tanh"]
    several = [(None, PASSES)] * 10
    found, _ = ask((FUSED, FAILS), *several, rate=0.5)
    assert not found.fused
    assert found.cause[0].startswith("One of ")


def test_fused_operators_stay_suspects_if_the_unfused_run_times_out() -> None:
    found, _ = ask((FUSED, FAILS), (SEEN, FAILS), (None, Ending("timeout")))
    assert culprit_names(found) == ["relu", "tanh"]
    assert found.cause[0].startswith("One of aten.relu.default and aten.tanh.default ")
    assert "with a kernel that also returns its intermediate values" in found.cause[0]
    assert found.unknown[0].startswith("whether the program fails without fusion: ")


def test_all_fused_operators_are_culprits_if_returning_values_passes() -> None:
    found, _ = ask((FUSED, FAILS), (kernel_values(computed_value(1, "relu")), PASSES))
    assert culprit_names(found) == ["relu", "tanh", "cos"]
    assert found.cause[1] == "The program passes when it also returns inner values."
    assert found.unknown == ()


def test_all_fused_operators_are_suspects_if_inseparable() -> None:
    found, _ = ask((FUSED, FAILS), (None, Ending("timeout")))
    assert culprit_names(found) == ["relu", "tanh", "cos"]
    assert found.cause[0].startswith(
        "One of aten.relu.default, aten.tanh.default and aten.cos.default in kernel "
        "cpp_0 (launch 1 of 3) is wrong: "
    )
    assert "the run had no result" in found.unknown[0]


def test_no_culprit_is_named_if_the_instrumented_run_passes() -> None:
    found, server = ask((kernel_values(computed_value(1, "tanh", WRONG)), PASSES))
    assert found.culprits == ()
    assert "the instrumented run did not fail" in found.unknown[0]
    assert len(server.asked) == 1


def test_wrong_values_are_not_searched_for_a_crash() -> None:
    client = CheckClient(FakeServer(FAILS), Limits(10.0, 1 << 30))
    crash = Signature(Kind.CRASH, Stage.RUN)
    assert values(ReducedProgram(client, PROGRAM, crash)) is None


def test_explanation_round_trips_through_json() -> None:
    found = find_first_wrong(PROGRAM, kernel_values(computed_value(1, "relu", WRONG)))
    written = Explanation(values=found)
    assert Explanation.from_line(written.to_line()) == written
