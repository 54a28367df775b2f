"""The original's kernel of a failure, by what the original itself tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from test_asking import BOUNDS, Recorded
from test_guide import PROGRAM, TARGET, Flagged

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.explain.artifacts import OriginalKernels, find_original_kernels
from shrinkfx.explain.guide import run_guide
from shrinkfx.explain.reduced_program import ReducedProgram, select_operators
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.guide import Guide
from shrinkfx.program.apply import apply
from shrinkfx.program.edits import Drop
from shrinkfx.protocol.answers import Checked, Difference, Ending
from shrinkfx.protocol.requests import CheckCandidate, Request

KERNEL = "cpp_fused_flip_roll_0"


def of_roll(server: Recorded, target: Signature = BOUNDS) -> ReducedProgram:
    """Take a program of two operators, of which the second one fails alone."""
    minimum = server.minimum(target)
    alone = apply(minimum.candidate, [Drop(frozenset({"flip"}))])
    return replace(minimum, candidate=alone)


def original_kernels(minimum: ReducedProgram, *guilty: str) -> OriginalKernels:
    return find_original_kernels(minimum, select_operators(minimum.candidate, guilty))


def test_failing_kernel_of_the_input_program_is_saved() -> None:
    server = Recorded("roll")
    left = original_kernels(of_roll(server))
    (text,) = left.files.values()
    assert [*left.files] == [f"{KERNEL}.cpp"]
    head, _, code = text.partition("\n")
    assert head == "// the input program's kernel that fails, launch 1 of 1"
    assert KERNEL in code
    (asked,) = server.asked
    assert isinstance(asked.task, CheckCandidate)
    whole = server.minimum().candidate.to_json()
    assert asked.task.candidate == whole != of_roll(server).candidate.to_json()


class Wrong(Recorded):
    """Dies of nothing: a value is wrong."""

    def ask(self, request: Request) -> Ending:
        super().ask(request)
        assert request.options.compiled_view is not None
        (Path(request.options.compiled_view) / "telling").unlink()
        return Ending("exit", 0, "done", Checked(Difference("values", "one differs")))


MISMATCH = Signature(Kind.MISMATCH, Stage.COMPARE)


def test_kernel_of_the_culprit_is_saved_for_a_wrong_value() -> None:
    left = original_kernels(of_roll(Wrong("roll"), MISMATCH), "roll")
    (text,) = left.files.values()
    said = (
        "// the input program's kernel for aten.roll.default (own2.py:6), launch 1 of 1"
    )
    assert text.startswith(f"{said}\n")


def test_kernel_of_the_remaining_operator_is_saved_without_a_culprit() -> None:
    left = original_kernels(of_roll(Wrong("roll"), MISMATCH))
    assert "kernel for aten.roll.default" in left.files[f"{KERNEL}.cpp"]


def test_unknown_kernel_of_the_input_program_has_a_reason() -> None:
    whole = Recorded("roll")
    assert "is the input program" in original_kernels(whole.minimum()).why_not
    assert not whole.asked
    passes = of_roll(Recorded("roll", fails_in=()))
    assert original_kernels(passes).why_not.endswith(
        "the instrumented run did not fail"
    )
    renamed = of_roll(Recorded("roll", renamed="it has other names"))
    assert original_kernels(renamed).why_not.endswith("it has other names")
    untold = of_roll(Recorded("roll", tells=False))
    assert original_kernels(untold).why_not.endswith("run recorded nothing")


def test_kernel_of_the_input_program_is_saved_in_the_explain_folder(
    tmp_path: Path,
) -> None:
    def left(of_it: OriginalKernels) -> Guide:
        minimum = ReducedProgram(
            CheckClient(Flagged(), Limits(60.0, 1 << 30)), PROGRAM, TARGET
        )
        return run_guide(minimum, ("bad_1",), tmp_path / "explain", of_it)

    known = left(OriginalKernels({"bad_7.cpp": "// the original's\n"}))
    assert "original/bad_7.cpp" in [file.name for file in known.files]
    assert (tmp_path / "explain/original/bad_7.cpp").read_text().startswith("//")
    unknown = left(
        OriginalKernels(why_not="the input program's kernel: minutes were short")
    )
    assert "the input program's kernel: minutes were short" in unknown.left_out
