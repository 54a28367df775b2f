"""A repro's end, read off what it printed."""

from __future__ import annotations

import pytest

from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.script import (
    CANNOT_TELL,
    RAN_TO_END_PREFIX,
    convert_script_ending,
    frames_of_death,
    name_frame,
)
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Stage
from shrinkfx.protocol.answers import Ending, Unresolved

SCRIPT = """\
import torch
model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
torch.testing.assert_close(actual, expected)
print("no longer fails")
"""


def died(line: int, error: str, code: int = 1) -> Ending:
    """The end of a script that raised in a line."""
    trace = (
        "noise\nTraceback (most recent call last):\n"
        f'  File "/x/repro.py", line {line}, in <module>\n    some code\n'
        '  File "/lib/site-packages/torch/_inductor/ir.py", line 9, in freeze\n'
        f"    more\n{error}\n"
    )
    return convert_script_ending(Ending("exit", code, log=trace), SCRIPT)


@pytest.mark.parametrize(
    ("line", "stage"),
    [(4, "rebuild"), (5, "eager"), (6, "compile"), (7, "load"), (8, "run")],
)
def test_stage_comes_from_the_failing_script_line(line: int, stage: str) -> None:
    assert died(line, "RuntimeError: no").stage == stage


def test_unsupported_code_on_the_interpreter_is_unresolved() -> None:
    answer = Unresolved("inline assembly")
    seen = classify_ending(
        convert_script_ending(Ending("exit", stage="run", answer=answer), SCRIPT)
    )
    assert seen.unresolved == "inline assembly"
    assert not seen.is_conclusive


def test_exception_has_its_type_message_and_frames() -> None:
    ending = died(
        6, "torch._inductor.exc.InductorError: LoweringException: x\n  target: y"
    )
    error = ending.raised
    assert error is not None
    assert error.type == "InductorError"
    assert error.message == "LoweringException: x\n  target: y\n".rstrip()
    assert error.frames[-1] == "torch/_inductor/ir.py:freeze"


def test_first_error_of_a_long_compiler_output_is_found() -> None:
    output = "k.cpp:9:1: error: 'foo' was not declared\n" + "k.cpp: note: more\n" * 9000
    text = f"InductorError: CppCompileError: C++ compile error\n\nOutput:\n{output}"
    seen = classify_ending(died(6, text)).signature
    assert seen is not None
    assert seen.detail == "C++: 'foo' was not declared"
    assert len(classify_ending(died(6, text)).log) < 20_000


def test_export_failure_is_not_a_compiler_failure() -> None:
    assert classify_ending(died(4, "RuntimeError: cannot export")).signature is None


def test_failed_comparison_is_a_mismatch() -> None:
    seen = classify_ending(
        died(9, "AssertionError: Tensor-likes are not close!")
    ).signature
    assert seen is not None
    assert (seen.kind, seen.stage) == (Kind.MISMATCH, Stage.COMPARE)


@pytest.mark.parametrize(
    ("says", "differs"),
    [
        ("Tensor-likes are not close!\n\nMismatched elements: 4 / 4", "values"),
        ("The values for attribute 'shape' do not match: torch.Size([1])", "shape"),
        ("Tensors differ\nThe values for attribute 'dtype' do not match", "dtype"),
        ("strides (1, 2), eager gives (2, 1)", "strides"),
        ("not finite where eager is finite", "values"),
    ],
)
def test_kind_of_difference_is_parsed_from_the_comparison(
    says: str, differs: str
) -> None:
    seen = classify_ending(died(9, f"AssertionError: {says}")).signature
    assert seen is not None
    assert seen.differs == differs


def test_failed_finiteness_check_is_a_nan_failure() -> None:
    error = "AssertionError: not finite where eager is finite"
    seen = classify_ending(died(9, error)).signature
    assert seen is not None
    assert seen.kind is Kind.NAN


def test_segfault_takes_its_stage_from_faulthandler() -> None:
    log = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent "
        'call first):\n  File "/lib/torch/x.py", line 3 in call\n'
        '  File "/tmp/repro.py", line 8 in <module>\n'
    )
    seen = classify_ending(
        convert_script_ending(Ending("signal", 11, log=log), SCRIPT)
    ).signature
    assert seen is not None
    assert (seen.kind, seen.stage) == (Kind.CRASH, Stage.RUN)


def test_heap_corruption_found_at_free_has_stage_run() -> None:
    freeing = SCRIPT.replace("print(", "del actual, compiled\nprint(")
    log = (
        "free(): invalid size\nFatal Python error: Aborted\n\n"
        "Current thread 0x7f (most recent call first):\n"
        '  File "/tmp/repro.py", line 10 in <module>\n'
    )
    seen = classify_ending(
        convert_script_ending(Ending("signal", 6, log=log), freeing)
    ).signature
    assert seen is not None
    assert (seen.kind, seen.stage, seen.detail) == (Kind.IMA, Stage.RUN, MEMORY_FAULT)


@pytest.mark.parametrize("how", ["timeout", "memory"])
def test_killed_script_takes_its_stage_from_faulthandler(how: str) -> None:
    log = (
        "Fatal Python error: Aborted\n\nThread 0x7f (most recent call first):\n"
        '  File "/lib/site-packages/torch/_inductor/ir.py", line 3 in freeze\n'
        '  File "/tmp/repro.py", line 6 in <module>\n'
    )
    seen = classify_ending(
        convert_script_ending(Ending(how, log=log), SCRIPT)
    ).signature
    assert seen is not None
    assert seen.stage is Stage.COMPILE


def test_truncated_stack_without_a_script_line_has_stage_compile() -> None:
    log = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent "
        "call first):\n"
        + '  File "/lib/site-packages/sympy/core/expr.py", line 3 in subs\n' * 100
        + "  ...\n\nExtension modules: torch._C (total: 1)\n"
    )
    seen = classify_ending(
        convert_script_ending(Ending("signal", 11, log=log), SCRIPT)
    ).signature
    assert seen is not None
    assert seen.stage is Stage.COMPILE


def test_script_that_passes_has_no_signature() -> None:
    ending = convert_script_ending(Ending("exit", 0, log="no longer fails\n"), SCRIPT)
    assert classify_ending(ending).signature is None
    assert ending.stage == "done"


def test_inconclusive_script_has_stage_done_and_no_signature() -> None:
    said = f"{RAN_TO_END_PREFIX}an out-of-bounds access need not show: ...\n"
    ending = convert_script_ending(Ending("exit", CANNOT_TELL, log=said), SCRIPT)
    seen = classify_ending(ending)
    assert (ending.stage, seen.signature, seen.invalid) == ("done", None, "")
    for log, code in (("noise\n", CANNOT_TELL), (said, 1)):
        other = classify_ending(
            convert_script_ending(Ending("exit", code, log=log), SCRIPT)
        )
        assert other.signature is not None


def test_frame_names_are_machine_independent() -> None:
    assert name_frame("/a/site-packages/torch/x.py", "f") == "torch/x.py:f"
    assert name_frame("/home/me/model.py", "g") == "model.py:g"


PASSES_FIRST = SCRIPT.replace(
    "torch.testing", 'print("passes at", *(v.shape for v in inputs))\ntorch.testing'
)


@pytest.mark.parametrize(
    ("said", "stage"),
    [("noise\n", Stage.PASSING), ("noise\npasses at (32, 4)\n", Stage.COMPARE)],
)
def test_script_failure_before_the_passing_run_has_stage_passing(
    said: str, stage: Stage
) -> None:
    trace = (
        f'{said}Traceback (most recent call last):\n  File "/x/repro.py", line 10, '
        "in <module>\nAssertionError: Tensor-likes are not close!\n"
    )
    seen = classify_ending(
        convert_script_ending(Ending("exit", 1, log=trace), PASSES_FIRST)
    ).signature
    assert seen is not None
    assert (seen.kind, seen.stage) == (Kind.MISMATCH, stage)


def test_crash_before_the_passing_run_is_a_different_failure() -> None:
    died_early = convert_script_ending(Ending("signal", 11, log=""), PASSES_FIRST)
    assert (
        classify_ending(died_early).signature
        != classify_ending(
            convert_script_ending(
                Ending("signal", 11, log="passes at (3,)\n"), PASSES_FIRST
            )
        ).signature
    )
    assert died_early.stage == "passing"


DUMP = """words of the program's own
Fatal Python error: Segmentation fault

Current thread 0x00007f0000000000 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/home/me/operators.py", line 7 in deeper
  File "/home/me/operators.py", line 5 in boom
  File "/env/site-packages/torch/_ops.py", line 871 in __call__
  File "/env/site-packages/torch/fx/interpreter.py", line 334 in call_function
  File "/env/site-packages/shrinkfx/worker/eager/intermediates.py", line 144 in run_node
  File "/env/site-packages/shrinkfx/worker/__main__.py", line 252 in <module>

Extension modules: numpy._core._multiarray_umath (total: 1)
"""


def test_crash_frames_exclude_shrinkfx() -> None:
    frames = frames_of_death(DUMP)
    assert frames[0].endswith("in string_at")
    assert frames[1] == 'File "/home/me/operators.py", line 7 in deeper'
    assert frames[-1].endswith("in __call__")
    assert not any("shrinkfx" in frame for frame in frames)
    assert frames_of_death("killed without a word") == []
