"""What is left of a program is listed with where it comes from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.doubles import Arguments, FakeServer
from support.lies import lie, strided, tensor

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.explain import cause
from shrinkfx.explain.cause import KnownFacts, explain
from shrinkfx.explain.reduced_program import (
    ReducedProgram,
    find_dependencies,
    list_operators,
)
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.findings.chain import Chain
from shrinkfx.findings.operators import OperatorMismatch, format_fails_alone
from shrinkfx.findings.record import EAGER_FAILS, Explanation
from shrinkfx.findings.values import WrongValue
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.kernel_values import Wrong
from shrinkfx.protocol.operators import VALUE_DEPENDENCIES, Misbehavior, OperatorFinding
from shrinkfx.testing import chain, operator, skeleton, whole
from shrinkfx.testing.listings import listed, listing

CRASH = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT)


def reduced_program(candidate: Candidate) -> ReducedProgram:
    return ReducedProgram(
        CheckClient(FakeServer(), Limits(10.0, 1 << 30)), candidate, CRASH
    )


def test_operators_have_their_source_line_and_module() -> None:
    placed = replace(operator("x", scope="blocks.3"), source="model.py:14")
    program = skeleton({"x": "", "relu": placed})
    (found,) = list_operators(Candidate.from_skeleton(program))
    assert str(found) == "aten.relu.default (model.py:14, module blocks.3)"


def test_substituted_operator_has_no_source_line() -> None:
    placed = replace(operator("x", target="aten.mm.default"), source="model.py:14")
    program = skeleton({"x": "", "mm": placed})
    candidate = Candidate(
        program, frozenset({"mm"}), {}, Outputs.SINKS, replace={"mm": "x"}
    ).normalised()
    (found,) = list_operators(candidate)
    assert found.operator != "aten.mm.default"
    assert not found.line


def test_operator_failing_alone_is_culprit_but_none_of_several() -> None:
    alone = explain(reduced_program(whole(chain("x", "relu"))), KnownFacts())
    assert alone.culprits == alone.operators
    own = explain(
        reduced_program(whole(chain("x", "relu"))), KnownFacts(own="by a.py.")
    )
    said = format_fails_alone(alone.operators[0])
    assert alone.cause == (said.replace("operator.", "operator; why is not known."),)
    assert own.cause == ("by a.py.", said)
    several = explain(reduced_program(whole(chain("x", "relu", "exp"))), KnownFacts())
    assert (several.culprits, several.cause) == ((), ())


WRONG = Wrong(wrong=1, of=2, first=(0,), got="1.0", expected="0.0")


def test_fake_kernel_mismatch_is_the_cause_of_a_later_wrong_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    minimum = reduced_program(whole(chain("x", "shift", "relu")))
    shift, relu = list_operators(minimum.candidate)
    found = WrongValue(culprits=(relu,), wrong=WRONG, kernel="cpp_fused_relu_0")
    monkeypatch.setattr(cause, "values", lambda _: found)
    honest = explain(minimum, KnownFacts())
    assert honest.culprits == (relu,)
    told = explain(
        minimum, KnownFacts(mismatches={"shift": strided("shift", (1,), (2,))})
    )
    assert told.culprits == (shift,)
    assert "has strides [1], but its fake kernel declares [2]" in told.cause[0]
    assert f"the first wrong values are in the result of {relu}" in told.cause[1]
    innocent = explain(
        minimum, KnownFacts(mismatches={"relu": strided("relu", (1,), (2,))})
    )
    assert innocent.culprits == (relu,)


@pytest.mark.parametrize("several", [True, False])
def test_fake_kernel_mismatch_is_the_cause_if_no_other_is_known(several: bool) -> None:
    names = ["shift", "relu"] if several else ["shift"]
    minimum = reduced_program(whole(chain("x", *names)))
    lies = {"shift": strided("shift", (1,), (2,))}
    told = explain(minimum, KnownFacts(mismatches=lies))
    assert [one.name for one in told.culprits] == ["shift"]
    assert told.cause == (
        "Fake-kernel mismatch in the input program: aten.shift.default has "
        "strides [1], but its fake kernel declares [2].",
        "Compiled code assumes that aten.shift.default returns what its fake kernel "
        "declares.",
    )
    assert told.culprit_mismatch is not None
    while_compiled = replace(minimum, target=Signature(Kind.CRASH, Stage.COMPILE, "x"))
    assert explain(while_compiled, KnownFacts(mismatches=lies)).mismatches == ()


def test_unsteady_operator_is_the_culprit(monkeypatch: pytest.MonkeyPatch) -> None:
    minimum = reduced_program(whole(chain("x", "shift", "relu")))
    shift, relu = list_operators(minimum.candidate)
    lie = OperatorMismatch(
        shift, VALUE_DEPENDENCIES[Misbehavior.UNSTEADY], what=Misbehavior.UNSTEADY
    )
    monkeypatch.setattr(cause, "find_reduced_mismatches", lambda *_: (lie,))
    told = explain(minimum, KnownFacts())
    assert (told.culprits, told.cause[0]) == ((shift,), lie.sentence)
    wrong = WrongValue(culprits=(relu,), wrong=WRONG, kernel="cpp_fused_relu_0")
    monkeypatch.setattr(cause, "values", lambda _: wrong)
    assert explain(minimum, KnownFacts()).culprits == (shift,)


def test_operator_that_writes_to_an_argument_is_the_culprit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Although no edge leads from it to the operator with the wrong result."""
    crashing = reduced_program(whole(chain("x", "shift", "relu")))
    wrong_result = Signature(Kind.MISMATCH, Stage.COMPARE, "")
    minimum = replace(crashing, target=wrong_result)
    shift, relu = list_operators(minimum.candidate)
    text = "writes to its argument x, but its schema does not declare that"
    lie = OperatorMismatch(relu, text, what=Misbehavior.WRITES)
    wrong = WrongValue(culprits=(shift,), wrong=WRONG, kernel="cpp_fused_shift_0")
    monkeypatch.setattr(cause, "find_reduced_mismatches", lambda *_: (lie,))
    monkeypatch.setattr(cause, "values", lambda _: wrong)
    told = explain(minimum, KnownFacts())
    assert told.cause == (f"aten.relu.default {text}.", *wrong.cause[:2])
    assert told.culprits == (relu,)
    assert explain(crashing, KnownFacts()).culprits == (shift,)


def test_fake_kernel_mismatch_is_reported_once_if_a_kernel_crashes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    minimum = reduced_program(whole(chain("x", "shift", "relu")))
    _, relu = list_operators(minimum.candidate)
    said = ("In kernel cpp_0 it dies.",)
    found = Chain(kernel="cpp_0", culprits=(relu,), dies=(relu,), cause=said)
    monkeypatch.setattr(cause, "chain", lambda *_: found)
    told = explain(
        minimum, KnownFacts(mismatches={"shift": strided("shift", (1,), (2,))})
    )
    assert told.cause == (
        "Fake-kernel mismatch in the input program: aten.shift.default has "
        "strides [1], but its fake kernel declares [2].",
        *said,
    )


def test_custom_operator_is_checked_at_reduced_program_sizes() -> None:
    """What the original's sizes were says nothing to who reads the repro."""
    custom = replace(operator("x"), target="mine.pool.default")
    program = skeleton({"x": "", "pool": custom, "relu": operator("pool")})
    found = OperatorFinding(
        *("mine.pool.default", Misbehavior.FAKE, "renamed"),
        call="for x[2]",
        declared=tensor("float32", 2),
        made=tensor("float32", 3),
        fake_kernel="/home/me/my_ops.py:10",
    )
    writes = replace(found, what=Misbehavior.WRITES, argument="x")

    def answer(arguments: Arguments) -> Ending:
        if "findings" in arguments:
            lines = writes.to_line() + found.to_line()
            Path(arguments["findings"]).write_text(lines + '{"wha')
        return Ending("exit")

    server = FakeServer(answer)
    client = CheckClient(server, Limits(10.0, 1 << 30))
    minimum = ReducedProgram(client, Candidate.from_skeleton(program), CRASH)
    told = explain(
        minimum, KnownFacts(mismatches={"pool": strided("pool", (48, 1), (1, 4))})
    )
    assert told.cause[0] == (
        "Fake-kernel mismatch: mine.pool.default has a fake kernel "
        "(my_ops.py:10) that declares float32[2] with strides [1], but the "
        "operator returns float32[3] with strides [1], for x[2]."
    )
    assert (told.mismatches[0].declared, told.mismatches[0].made) == (
        found.declared,
        found.made,
    )
    assert Explanation.from_line(told.to_line()) == told
    assert sum("findings" in asked for asked in server.arguments) == 1
    honest = explain(reduced_program(whole(chain("x", "relu", "exp"))), KnownFacts())
    assert honest.mismatches == ()


def test_fake_kernel_mismatch_is_the_cause_of_a_later_wrong_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    minimum = reduced_program(whole(chain("x", "shift", "relu", "cos")))
    shift, relu, cos = list_operators(minimum.candidate)
    said = "Index 99 of size 5.", "The index comes from relu.", "In eager it is 1..4."
    found = Chain(kernel="cpp_0", culprits=(shift, relu), dies=(cos,), cause=said)
    monkeypatch.setattr(cause, "chain", lambda *_: found)
    assert explain(minimum, KnownFacts()).culprits == (shift, relu)
    of_dtype = lie("shift", tensor("int32", 6), tensor("int64", 6))
    told = explain(minimum, KnownFacts(mismatches={"shift": of_dtype}))
    assert told.culprits == (shift,)
    assert told.cause == (
        "Fake-kernel mismatch in the input program: aten.shift.default is "
        "torch.int32[6] on cpu, but its fake kernel declares torch.int64[6] on cpu.",
        *said[:2],
    )


def test_dependencies_come_from_the_printed_program() -> None:
    """Its operands were redirected since it was a chain."""
    text = """
        relu = torch.ops.aten.relu.default(x)
        tanh = torch.ops.aten.tanh.default(x)
        add = torch.ops.aten.add.Tensor(tanh, tanh.shape[0])
        return (relu, add)
    """
    program = listed(listing(text))
    assert find_dependencies(program, ["add"]) == {"tanh"}
    assert find_dependencies(program, ["tanh"]) == set()


LIMIT = "Expected u0 <= 3 but received 6"
INDEX = "index out of bounds: 0 <= tmp0 < 3"


@pytest.mark.parametrize(
    ("text", "compared", "first"),
    [
        (
            *(LIMIT, False),
            "The exported program checks that u0 <= 3, but the value is 6. "
            "torch.export takes such a limit from the fake kernel of an operator or "
            "from torch._check: the limit or the inputs may be wrong.",
        ),
        (
            *(LIMIT, True),
            "The exported program checks that u0 <= 3, but the value is 6. The same "
            "code runs in eager without an error, so the limit comes from a fake "
            "kernel that disagrees with the real kernel.",
        ),
        (INDEX, False, EAGER_FAILS),
        (
            INDEX,
            True,
            "aten.relu.default fails alone: the reduced program has no other "
            "operator; why is not known.",
        ),
    ],
)
def test_limit_of_the_exported_program_is_a_cause(
    text: str, compared: bool, first: str
) -> None:
    failure = Signature(Kind.ASSERT, Stage.RUN, text, text=text)
    minimum = reduced_program(whole(chain("x", "relu")))
    client = minimum.client.with_options(reference=False)
    facts = KnownFacts(compared=compared)
    told = explain(replace(minimum, client=client, target=failure), facts)
    assert told.cause[0] == first
