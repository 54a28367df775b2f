"""``ISSUE.md``: PyTorch's form, filled in from records, and fit to be shared."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.lies import strided, tensor

from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.code import CodeLine
from shrinkfx.findings.compiling import StopPoint
from shrinkfx.findings.decisions import Decisions, OptionSearch, Setting, SkippedPart
from shrinkfx.findings.decisions import format_decisions as decision_lines
from shrinkfx.findings.operators import Operator, OperatorMismatch, format_fails_alone
from shrinkfx.findings.record import Explanation, explanation_lines
from shrinkfx.preloads.preload_bundle import CustomCompilerCode, PreloadBundle
from shrinkfx.protocol.answers import Collected
from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.operators import VALUE_DEPENDENCIES, Misbehavior, OperatorFinding
from shrinkfx.report.anonymous import (
    environment_text,
    strip_paths,
    strip_values,
    with_gpu,
)
from shrinkfx.report.in_compiler import (
    describe_custom_code,
    format_disappears_without,
    format_stops_in_function,
)
from shrinkfx.report.issue.facts import IssueFacts, facts_of
from shrinkfx.report.issue.script import (
    Traits,
    error_log,
    find_model_remains,
    quote_script,
    traits_of,
)
from shrinkfx.report.issue.text import issue_text, title_of
from shrinkfx.report.record import (
    Conditions,
    Failure,
    ModelRemains,
    OtherCauses,
    Programs,
    ProgramSize,
    ReproFiles,
    RunRecord,
    VerifiedRepro,
)
from shrinkfx.report.record import Search as Searched

SEEN = Signature(
    Kind.MISMATCH,
    Stage.COMPARE,
    text="output 0: dtype torch.int64, eager gives torch.int8",
)
LOG = """\
Traceback (most recent call last):
  File "/opt/x/shrinkfx/worker/__main__.py", line 9, in main
    runpy.run_path(path)
  File "<frozen runpy>", line 291, in run_path
  File "/tmp/abc/repro.py", line 20, in <module>
    torch.testing.assert_close(actual, expected, equal_nan=True)
  File "/home/me/site-packages/torch/testing/_comparison.py", line 1, in f
    raise error
AssertionError: The values for attribute 'dtype' do not match
Fatal Python error: Aborted
"""
SCRIPT = """\
# mismatch in AOTInductor (compare): reduced from 85 operators to 1.
# Made by: shrinkfx decoder.pt2

import torch


@torch.library.custom_op("mine::mix", mutates_args=())
def mix(x: torch.Tensor) -> torch.Tensor:  # as it was
    return x.clone()


class Repro(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder_embed_weight = torch.nn.Parameter(unpack("aa", torch.int8, (2,)))
        self.weight = torch.nn.Parameter(torch.ones((2,)), requires_grad=False)

    def forward(self, token_ids, x):
        bmm = torch.ops.aten.bmm.default(token_ids, x)  # model.py:7, decoder.attention
        mix = torch.ops.mine.mix.default(bmm, 0.125, "# no comment")  # model.py:8
        return (mix,)


args = (torch.tensor([[101, 7592]]), torch.zeros((1, 1)))
N = torch.export.Dim("N", min=2, max=9)
batch = torch.export.Dim("batch", min=2, max=9)
"""
GUILTY = Operator("bmm_1", "aten.bmm.default", "model.py:7", "decoder.attention")
EXPLAINED = Explanation(
    cause=(f"{GUILTY} in kernel cpp_fused_bmm_0 is wrong.",),
    operators=(GUILTY,),
    culprits=(GUILTY,),
)
RECORD = RunRecord(
    Failure(SEEN, SEEN),
    Programs(ProgramSize(85), ProgramSize(1), 85, ("aten.bmm.default",)),
    command="shrinkfx decoder.pt2",
    versions={"torch": "2.13.0", "Python": "3.11.7"},
    search=Searched(minimal=True),
    verified=VerifiedRepro(ReproFiles((Path("out/repro.py"),), "source"), 3, 3, LOG),
)
FACTS = facts_of(RECORD)


GOLDEN = Path(__file__).parents[1] / "golden" / "issue.md"


def text_of(facts: IssueFacts = FACTS, explanation: Explanation = EXPLAINED) -> str:
    return issue_text(facts, explanation, SCRIPT, "PyTorch version: 2.13.0")


def test_issue_matches_the_golden_file() -> None:
    """Read it in one go, and record it again where it is to change."""
    assert text_of() == GOLDEN.read_text()


def test_kernel_name_is_not_shortened_in_an_issue() -> None:
    """A reader looks for it in the generated code."""
    kernel = "cpp_fused_add_cat_hypot_mul_native_layer_norm_sigmoid_split_5"
    cause = (f"{GUILTY} in kernel {kernel} is wrong.",)
    text = text_of(explanation=replace(EXPLAINED, cause=cause))
    assert f"in kernel `{kernel}` is wrong." in text


def test_issue_warns_first_if_inputs_differ_from_the_compiled_ones() -> None:
    said = "The program was compiled for other inputs: x has strides [1, 2]."
    found = replace(EXPLAINED, inputs=said, cause=(said,), culprits=())
    first = text_of(explanation=found).split("\n\n")[1]
    assert first == f"> **Check the inputs first: do not file this as it is.** {said}"
    assert "Check the inputs first" not in text_of()


def test_issue_has_the_sections_of_the_pytorch_form() -> None:
    text = text_of()
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads[1:] == ["### 🐛 Describe the bug", "### Error logs", "### Versions"]
    assert heads[0] == (
        "# [AOTInductor] wrong dtype of aten.bmm: int64 instead of int8"
    )
    assert "returns a result different from eager." in text
    assert "```python\nimport torch\n" in text
    assert (
        "**Expected:** The compiled program returns the same result as eager." in text
    )
    assert "`aten.bmm` in kernel `cpp_fused_bmm_0` is wrong." in text
    assert text.count("shrinkfx") == 1
    assert text.rstrip().endswith(".)")


def test_issue_text_omits_names_of_the_model_and_machine() -> None:
    text = text_of()
    for word in ("model.py", "decoder.attention", "/home/me", "/tmp/", "decoder.pt2"):
        assert word not in text, word
    assert "torch/testing/_comparison.py" in text


def test_log_line_numbers_match_the_quoted_script() -> None:
    above = SCRIPT.partition("import torch")[0].count("\n")
    assert f'File "repro.py", line {20 - above}, in <module>' in text_of()


@pytest.mark.parametrize(
    ("above", "code", "line"),
    [(3, "", 17), (1, "", 19), (1, "a = 1\n" * 9_000, 22), (3, "a = 1\n" * 9_000, 20)],
)
def test_log_line_numbers_match_the_script_as_it_ran(
    above: int, code: str, line: int
) -> None:
    """A cause is told in its header later; too long to be quoted, it is attached."""
    facts = replace(FACTS, above=above)
    text = issue_text(facts, EXPLAINED, SCRIPT + code, "")
    assert ("too long to quote" in text) == bool(code)
    assert f'File "repro.py", line {line}, in <module>' in text
    assert IssueFacts.from_line(facts.to_line()) == facts


def test_given_title_is_used() -> None:
    text = issue_text(FACTS, EXPLAINED, SCRIPT, "", "int8 bmm is int64")
    assert text.startswith("# int8 bmm is int64\n")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (replace(FACTS, runs=3, failed=1), "failed in 1 of 3 runs"),
        (replace(FACTS, runs=0, failed=0), "has not been run"),
    ],
)
def test_unverified_issue_starts_with_a_warning(facts: IssueFacts, said: str) -> None:
    top = text_of(facts).partition("###")[0]
    assert "Not verified" in top
    assert said in top
    assert "Not verified" not in text_of()


def test_issue_lists_facts_that_are_not_determined() -> None:
    known = text_of()
    assert "Whether every operator of" not in known
    assert "PyTorch versions other than 2.13.0" in known
    flaky = replace(FACTS, rate=0.4, minimal=False, interpreted="sm_90")
    text = text_of(flaky, Explanation())
    for said in ("about 40% of the runs", "every operator of", "- The root cause."):
        assert said in text
    assert "Triton's interpreter" in text


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_issue_and_terminal_list_the_same_undetermined_facts(
    settled: bool, own: bool
) -> None:
    """One list: that of the terminal and the page."""
    said = "The program was compiled for other inputs." if settled else ""
    untold = ("which operator was rewritten", f"why {GUILTY} is lost: no trace")
    known = replace(EXPLAINED, inputs=said, unknown=untold)
    places = ("torch._inductor.config post_grad_custom_pre_pass",)
    facts = replace(FACTS, needs_own=own, in_compiler=CustomCompilerCode(places=places))
    lines = text_of(facts, known).partition("determined:**\n")[2].splitlines()
    stands = " (the root cause does not depend on this)" if settled else ""
    assert f"- Which operator was rewritten{stands}." in lines
    assert f"- Why `aten.bmm` is lost: no trace{stands}." in lines
    shown = "\n".join(explanation_lines(known, FACTS.failure))
    assert all(text in shown for text in untold)


def test_unqueried_simplifications_are_listed_as_not_determined() -> None:
    why = "not asked: minutes are short"
    claims = {"operators": "1-minimal", "sizes": why, "values": "kept", "dtypes": why}
    record = replace(RECORD, search=replace(RECORD.search, kinds=claims))
    said = "- Whether it fails with smaller or simpler sizes and dtypes."
    assert said in text_of(facts_of(record)).splitlines()
    assert "smaller or simpler" not in text_of()
    stopped = replace(facts_of(record), stopped="the minutes are spent")
    assert "smaller or simpler" not in text_of(stopped)


def test_cause_that_only_repeats_the_error_is_omitted() -> None:
    said = "ValueError: no place for five."
    facts = replace(FACTS, kind=Kind.EXCEPTION, stage=Stage.RUN, message=said)
    halted = StopPoint((GUILTY,), "the run", message=said)
    text = text_of(facts, Explanation(cause=halted.cause, compile_error=halted))
    assert "**Root cause:**" not in text
    assert "- The root cause." in text


def test_cause_omits_text_already_in_the_issue() -> None:
    said = "'no_such' was not declared in this scope"
    facts = replace(FACTS, kind=Kind.COMPILE_ERROR, stage=Stage.COMPILE, message=said)
    code = (CodeLine(13, "x = no_such(y);", at_fault=True),)
    halted = StopPoint(
        (GUILTY,), "C++ compilation", message=said, kernel="cpp_0", code=code
    )
    text = text_of(facts, Explanation(cause=halted.cause, compile_error=halted))
    assert (
        "cause:** C++ compilation of kernel cpp_0, which computes `aten.bmm`, fails.\n"
        in text
    )
    assert text.count("no_such(y)") == 1


def test_search_result_alone_is_no_root_cause() -> None:
    told = Explanation(cause=(format_fails_alone(GUILTY),), operators=(GUILTY,))
    text = text_of(FACTS, told)
    assert "**Root cause:**" not in text
    assert "- The root cause." in text


def test_generated_code_is_quoted_with_the_line_at_fault() -> None:
    code = (CodeLine(1, "    {"), CodeLine(2, "        check(i < n);", at_fault=True))
    halted = StopPoint((), "compiling", "cpp", code=code)
    text = text_of(FACTS, replace(EXPLAINED, compile_error=halted))
    assert "```cpp\n{\n    check(i < n);  // <-- here\n```" in text


def test_quoted_script_does_not_mention_shrinkfx() -> None:
    text = 'print("run it under compute-sanitizer or `shrinkfx --verify`")\n'
    assert quote_script(text) == 'print("run it under compute-sanitizer")\n'


def test_triton_code_is_quoted_as_python() -> None:
    code = (CodeLine(1, "    x = i"), CodeLine(2, "    tl.load(x)", at_fault=True))
    halted = StopPoint((), "compiling", "ptxas", code=code)
    text = text_of(FACTS, replace(EXPLAINED, compile_error=halted))
    assert "```python\nx = i\ntl.load(x)  # <-- here\n```" in text


def test_interpreter_finding_is_logged_without_interpreter_frames() -> None:
    said = "interpreter: illegal memory access: of 4 bytes at `tl.load(x)`"
    log = f"""\
Traceback (most recent call last):
  File "/tmp/abc/repro.py", line 20, in <module>
    package = torch._inductor.aoti_compile_and_package(program)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/me/site-packages/shrinkfx/worker/interpreter/launch.py", line 9, in run
    raise Report(CHECKER.findings)
shrinkfx.worker.interpreter.findings.Report: {said}
"""
    assert error_log(log, "repro.py").splitlines()[1:] == [
        '  File "repro.py", line 20, in <module>',
        "    package = torch._inductor.aoti_compile_and_package(program)",
        "              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        said,
    ]
    facts = replace(
        FACTS, kind=Kind.IMA, message=said, environment=("X",), interpreted="sm_90"
    )
    text = text_of(facts)
    assert f"**Actual:** `` {said} ``." in text
    assert "The script sets `X`." in text
    assert "The failure needs `X`, which" in text_of(replace(facts, interpreted=""))


def test_input_check_variable_is_not_listed_for_check_inputs() -> None:
    checks = "AOTI_RUNTIME_CHECK_INPUTS"
    facts = replace(FACTS, kind=Kind.CHECK_INPUTS, environment=(checks,))
    assert "The failure needs" not in text_of(facts)
    both = replace(facts, environment=(checks, "X"))
    assert "The failure needs `X`, which the script sets." in text_of(both)


def test_compiler_decisions_are_stated_once() -> None:
    left = SkippedPart(Subsystem.LOWERINGS, 2, 9, "aten.bmm.default", alone=True)
    switching = OptionSearch(tried=32)
    known = Decisions(switching, (left,))
    said = decision_lines(known, FACTS.failure)[0]
    text = text_of(FACTS, replace(EXPLAINED, decisions=known, cause=(said,)))
    assert text.count("bmm` falls back to the eager kernel.") == 1
    assert "lowering 2" not in text
    assert (
        "The failure is the same with 32 Inductor options at conservative values, all "
        "set at once." in text
    )
    assert "Whether an Inductor option" not in text
    setting = Setting("epilogue_fusion", False, "fusing")
    left = SkippedPart(Subsystem.POST_GRAD, 2, 9, "group_batch")
    known = Decisions(OptionSearch(32, (setting,), minimal=True), (left,))
    text = text_of(FACTS, replace(EXPLAINED, decisions=known))
    assert "without the post-grad pass `group_batch` and every later one" in text
    assert "The failure disappears with `epilogue_fusion=False`." in text


def test_issue_warnings_omit_command_line_options() -> None:
    warnings = (
        "with CHECK=1 the program refuses its inputs (size 25==22); the inputs may be "
        "at fault. Other inputs: --inputs FILE; to reduce the refusal: --until x",
        "with CHECK=1 it fails otherwise: assert in run: expected size 4; what that "
        "names may be the cause. To reduce that instead: --until assert",
    )
    lies = (strided("mix", (1,), (2,), "my.mix.default"),)
    careful = OtherCauses(lies, warnings=warnings)
    text = text_of(replace(FACTS, caveats=careful))
    assert "expected size 4; what that names may be the cause.\n" in text
    said = "With CHECK=1 the program refuses its inputs (size 25==22); the"
    assert "In the input program (before the reduction, at its sizes):\n- Fake-" in text
    assert f"{said} inputs may be at fault.\n" in text
    assert "Fake-kernel mismatch: mix (`my.mix`) has strides" in text
    assert "--" not in text.partition("### Error")[0]


def test_issue_of_a_fake_kernel_mismatch_is_for_the_operator_author() -> None:
    mix = Operator("mix", "my.mix.default", "model.py:8", "decoder")
    said = "has a fake kernel that declares f32[2], but its result is f32[3], for x[2]"
    lie = OperatorMismatch(mix, said, "/home/me/models/ops.py:12")
    found = Explanation(cause=(lie.sentence,), culprits=(mix,), mismatches=(lie,))
    whole = OperatorFinding(
        *("my.mix.default", Misbehavior.FAKE, "mix"),
        declared=tensor("f32", 64),
        made=tensor("f32", 96),
    )
    others = strided("other", (1,), (2,), "my.other.default")
    careful = OtherCauses((others,), (whole,))
    text = text_of(replace(FACTS, caveats=careful), found)
    title, top, rest = text.split("\n\n", 2)
    assert title.startswith("# my.mix: fake-kernel mismatch (AOTInductor: wrong ")
    assert (
        "**Do not file this with PyTorch: send it to the author of `my.mix`.**" in top
    )
    assert "(`ops.py:12`)" in top
    assert "torch.library.opcheck(torch.ops.my.mix.default, args, kwargs, " in rest
    assert rest.count("has a fake kernel that declares f32[2]") == 1
    assert "f32[64]" not in rest  # the original's, of the same
    assert "other (`my.other`) has strides [1]" in rest
    assert "model.py" not in text
    assert "PyTorch versions other" not in text
    anonymous = text_of(replace(FACTS, anonymous=True), found)
    assert "ops.py" not in anonymous
    interpreted = replace(FACTS, interpreted="sm_90")
    explained = "Triton's interpreter, which runs Triton kernels on the CPU, found the"
    assert explained in text_of(interpreted, found).split("\n\n", 2)[1]
    compiled = replace(interpreted, kind=Kind.COMPILE_ERROR)
    assert explained not in text_of(compiled, found)
    assert explained not in text


@pytest.mark.parametrize("what", list(VALUE_DEPENDENCIES))
def test_issue_of_an_inconsistent_operator_explains_how_to_check_it(
    what: Misbehavior,
) -> None:
    mix = Operator("mix", "mine.mix.default")
    said = OperatorFinding("mine.mix.default", what, "mix", "for x[2]").behavior_text
    lie = OperatorMismatch(mix, said, what=what)
    assert lie.sentence == f"{mix} {said}."
    text = text_of(
        FACTS, Explanation(cause=(lie.sentence,), culprits=(mix,), mismatches=(lie,))
    )
    assert text.startswith("# mine.mix: incorrect kernel")
    assert (
        "**Do not file this with PyTorch: send it to the author of `mine.mix`.**"
        in text
    )
    assert "call the operator in eager" in text.lower()
    assert "opcheck" not in text


def test_issue_for_the_author_has_declared_and_actual_tensor_specs() -> None:
    mix = Operator("mix", "mine.mix.default")
    declared, made = tensor("float32", 2), tensor("float32", 3)
    said = f"has a fake kernel that declares {declared}, but its result is {made}"
    lie = OperatorMismatch(
        mix, f"{said}, for x[2]", "ops.py:12", False, "", declared, made
    )
    shows = "Compiled code reads that result as it is declared."
    found = Explanation(cause=(lie.sentence, shows), culprits=(mix,), mismatches=(lie,))
    guards = "with CHECK=1 it fails otherwise: expected size 2==3: Error in op: "
    careful = OtherCauses(
        warnings=(f"{guards}torch.ops.mine.mix.default; that may be the cause",)
    )
    known = ("torch 2.13.0", "Python 3.11.7", "g++ 12.2.0", "on Linux x86_64")
    script = SCRIPT + "model = Repro().eval()\n"
    facts = replace(FACTS, caveats=careful, versions=known)
    text = issue_text(facts, found, script, "CPU flags")
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads[1:] == [
        "### Declared vs. actual",
        "### How to reproduce",
        "### Impact",
        "### Versions",
    ]
    assert f"- declared by the fake kernel (`ops.py:12`): `{declared}`\n" in text
    assert f"- returned by the operator: `{made}`\n- called with: `x[2]`\n" in text
    assert "after the assignment to `model`" in text
    assert 'opcheck(operator, *call, test_utils="test_faketensor")' in text
    assert text.count(str(declared)) == 1  # and not in the cause again
    assert shows in text
    assert "fails otherwise" not in text
    assert "```\ntorch 2.13.0\nPython 3.11.7\ng++ 12.2.0\n```" in text
    other = careful.warnings[0].replace("mine.mix.default", "mine.mix.default_2")
    careful = careful.with_warning(other)
    text = issue_text(replace(facts, caveats=careful), found, script, "")
    assert text.count("fails otherwise") == 1


@pytest.mark.parametrize("what", ["strides", "dtype"])
def test_strides_issue_names_the_versions_whose_opcheck_compares_them(
    what: str,
) -> None:
    mix = Operator("mix", "mine.mix.default")
    declared, made = tensor("float32", 4, 6), tensor("float64", 4, 6)
    if what == "strides":
        made = tensor("float32", 4, 6, strides=(1, 4))
    lie = OperatorMismatch(mix, "lies", "ops.py:12", False, "", declared, made)
    found = Explanation(cause=(lie.sentence,), culprits=(mix,), mismatches=(lie,))
    script = SCRIPT + "model = Repro().eval()\n"
    text = issue_text(FACTS, found, script, "")
    assert ("not in 2.11" in text) is (what == "strides")


def test_fake_kernel_mismatch_of_an_aten_operator_is_for_pytorch() -> None:
    own = Operator("bmm", "aten.bmm.default")
    lie = OperatorMismatch(own, "is torch.int8[2]", in_original=True)
    found = Explanation(cause=(lie.sentence,), culprits=(own,), mismatches=(lie,))
    text = text_of(FACTS, found)
    assert text.startswith("# [AOTInductor] wrong dtype of aten.bmm")
    assert "Fake-kernel mismatch in the input program: " in text
    assert "do not file" not in text


OWN = CustomCompilerCode(
    ("torch._inductor.config post_grad_custom_post_pass",), ("passes.py",)
)
"""What a preload of the user's has put into the compiler."""


def facts_with_own_code(
    fails_without: bool | None, *, anonymous: bool = False
) -> IssueFacts:
    carried = PreloadBundle(in_compiler=OWN)
    written = replace(
        RECORD.verified.written, carried=carried, fails_without_own=fails_without
    )
    verified = replace(RECORD.verified, written=written)
    return facts_of(replace(RECORD, verified=verified), anonymous=anonymous)


def test_issue_that_needs_custom_inductor_code_is_for_its_author() -> None:
    said = format_disappears_without(OWN)
    found = replace(EXPLAINED, cause=(said, *EXPLAINED.cause))
    title, top, rest = text_of(facts_with_own_code(False), found).split("\n\n", 2)
    assert title == (
        "# [AOTInductor] wrong dtype of aten.bmm with a custom "
        "post_grad_custom_post_pass from passes.py: int64 instead of int8"
    )
    assert "as it is: send it to the author of `passes.py` first.**" in top
    assert "`passes.py` sets `post_grad_custom_post_pass`" in top
    assert "the failure disappears without it" in top
    assert said not in rest
    assert "`aten.bmm` in kernel `cpp_fused_bmm_0` is wrong." in rest
    assert "- Whether the bug is in the custom Inductor code" in rest
    anonymous = text_of(facts_with_own_code(False, anonymous=True), found)
    assert "passes.py" not in anonymous
    assert "post_grad_custom_post_pass" in anonymous
    assert "send it to the author of the custom code first.**" in anonymous


DUMP = """\
Fatal Python error: Aborted

Thread 0x00007f17c13546c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f17f1459b80 (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/fx/node.py", line 887 in __setattr__
  File "/tmp/tmpma0gijl1/ranker/passes.py", line 15 in settle
  File "/env/lib/python3.11/site-packages/torch/_inductor/compile_fx.py", line 582 in go
  File "/tmp/abc/repro.py", line 20 in <module>
"""
HANGS = Signature(Kind.HANG, Stage.COMPILE, "", "did not end within the time limit")


def stop_facts(seen: Signature, *, anonymous: bool = False) -> IssueFacts:
    """State a failure whose stack has a pass of the user's own in it."""
    verified = replace(RECORD.verified, log=DUMP)
    record = replace(RECORD, failure=Failure(seen, seen), verified=verified)
    return facts_of(record, anonymous=anonymous)


def test_issue_of_a_hang_in_user_code_is_for_its_author() -> None:
    title, top, rest = text_of(stop_facts(HANGS)).split("\n\n", 2)
    assert title == "# passes.py:settle hangs while AOTInductor compiles aten.bmm"
    owner = "`passes.py:settle`"
    assert f"as it is: send it to the author of {owner} first.**" in top
    said = "The compiler hangs in `passes.py:settle`, which is not part of PyTorch."
    assert said in top
    assert "- Whether the bug is in the custom Inductor code" in rest
    assert "**Expected:** The compilation finishes." in rest


def test_hang_sentence_is_not_repeated_as_root_cause() -> None:
    facts = stop_facts(HANGS)
    said = format_stops_in_function(Kind.HANG, facts.inside)
    rest = text_of(facts, replace(EXPLAINED, cause=(said,))).split("\n\n", 2)[2]
    assert said not in rest
    assert "**Root cause:**" not in rest


def test_anonymous_issue_omits_the_user_function_name() -> None:
    title, top, _ = text_of(stop_facts(HANGS, anonymous=True)).split("\n\n", 2)
    assert (
        title == "# Code of a preload module hangs while AOTInductor compiles aten.bmm"
    )
    said = "The compiler hangs in code of a preload module, which is not part of"
    assert said in top


def test_issue_of_a_crash_in_user_code_names_the_function() -> None:
    dies = Signature(Kind.CRASH, Stage.COMPILE, "SIGSEGV", "SIGSEGV")
    title, top, _ = text_of(stop_facts(dies)).split("\n\n", 2)
    assert title == "# passes.py:settle crashes while AOTInductor compiles aten.bmm"
    assert "The compiler crashes in `passes.py:settle`" in top


@pytest.mark.parametrize(
    "seen", [replace(HANGS, stage=Stage.RUN), replace(HANGS, kind=Kind.COMPILE_ERROR)]
)
def test_other_failures_are_not_attributed_to_user_code_on_the_stack(
    seen: Signature,
) -> None:
    assert not stop_facts(seen).inside
    assert "do not file" not in text_of(stop_facts(seen))


TWICE = "InductorError: AssertionError: both a fallback and a decomp for "


@pytest.mark.parametrize(
    ("own", "anonymous", "error", "title"),
    [
        (
            *(False, True, f"{TWICE}op"),
            "[AOTInductor] compile error in aten.bmm with a custom "
            "post_grad_custom_post_pass from a preload module",
        ),
        (
            *(False, True, f"{TWICE}same op: aten.lerp.Tensor"),
            "[AOTInductor] compile error in aten.bmm with a custom "
            "post_grad_custom_post_pass from a preload module",
        ),
        (
            *(False, False, f"{TWICE}same op: aten.lerp.Tensor"),
            "[AOTInductor] compile error in aten.bmm with a custom "
            "post_grad_custom_post_pass from passes.py",
        ),
        (
            *(None, False, f"{TWICE}same op: aten.lerp.Tensor, and more than that"),
            "[AOTInductor] compile error in aten.bmm: both a fallback and a decomp for "
            "same op: aten.lerp.Tensor, and more than that",
        ),
    ],
)
def test_title_drops_optional_parts_before_truncation(
    own: bool | None, error: str, title: str, *, anonymous: bool
) -> None:
    facts = facts_with_own_code(own, anonymous=anonymous)
    facts = replace(facts, kind=Kind.COMPILE_ERROR, message=error)
    assert title_of(facts, EXPLAINED, Traits(dtype="float16", dynamic=True)) == title


def test_sentence_about_a_preload_starts_properly() -> None:
    assert format_disappears_without(OWN, anonymous=True).startswith(
        "A preload module sets "
    )
    assert format_disappears_without(OWN).startswith("passes.py sets ")


def test_custom_inductor_code_of_unknown_effect_is_only_mentioned() -> None:
    text = text_of(facts_with_own_code(None))
    assert text.startswith("# [AOTInductor] wrong dtype of aten.bmm")
    assert "do not file" not in text
    said = "The script registers custom Inductor code: `passes.py` sets `post_grad_"
    assert said in text
    assert "- Whether the script fails without the custom Inductor code." in text


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (
            ["torch._inductor.kernel.conv lowerings: aten.silu.default"],
            "registers a lowering of aten.silu",
        ),
        (
            ["torch._decomp decomposition_table: aten.a.x", "m decompositions: b.b.b"],
            "registers a decomposition of aten.a.x and b.b.b",
        ),
        (
            ["torch._inductor.codegen.cpp CppOverrides: tanh"],
            "changes torch._inductor.codegen.cpp.CppOverrides.tanh",
        ),
        (
            ["m lowerings: a.a.a", "m lowerings: a.b.b", "m lowerings: a.c.c"],
            "registers a lowering of a.a.a, a.b.b and 1 more",
        ),
        (
            ["m lowerings: a.a.default", "torch._inductor.config x.y"],
            "sets x.y and registers a lowering of a.a",
        ),
    ],
)
def test_custom_code_is_described_by_the_places_it_changes(
    places: list[str], said: str
) -> None:
    assert (
        describe_custom_code(CustomCompilerCode(tuple(places)))
        == f"a preload module {said}"
    )


def test_custom_code_of_several_files_is_described_in_the_plural() -> None:
    places = ("m lowerings: a.a.default", "torch._inductor.config x.y")
    found = CustomCompilerCode(places, ("a.py", "b.py", "c.py"))
    said = "a.py, b.py and 1 more set x.y and register a lowering of a.a"
    assert describe_custom_code(found) == said
    assert describe_custom_code(found, anonymous=True) == (
        "a preload module sets x.y and registers a lowering of a.a"
    )


def test_custom_code_not_set_by_a_file_is_described_by_its_module() -> None:
    places = ("m decompositions: a.a.default", "torch._inductor.config x.y")
    found = CustomCompilerCode(places, ("my.passes",), only_defined=True)
    assert format_disappears_without(found) == (
        "Code from my.passes is in x.y and the decomposition of a.a; the failure "
        "disappears without that code."
    )
    assert format_disappears_without(found, anonymous=True).startswith(
        "Code from a preload module is in x.y "
    )


def test_script_that_is_too_long_or_needs_files_is_attached() -> None:
    beside = text_of(replace(FACTS, needed_files=("repro_inputs.pt",)))
    assert "Put the attached `repro_inputs.pt` in the folder" in beside
    long = issue_text(FACTS, EXPLAINED, SCRIPT + "# x\n" * 9000, "")
    assert "The script is too long to quote and is attached" in long
    assert len(long) < 65_536


def test_issue_facts_round_trip() -> None:
    facts = facts_of(
        replace(RECORD, conditions=Conditions(inductor={"max_autotune": True}))
    )
    assert IssueFacts.from_line(facts.to_line()) == facts
    assert "options `{'max_autotune': True}`" in text_of(facts)


KINDS = [kind for kind in Kind if kind is not Kind.CHECK]


@pytest.mark.parametrize("kind", KINDS)
def test_each_failure_kind_has_a_title_and_a_sentence(kind: Kind) -> None:
    said = "RuntimeError: it `does` not do"
    facts = replace(FACTS, kind=kind, stage=Stage.RUN, message=said)
    title = title_of(facts, EXPLAINED, Traits())
    assert title.startswith("[AOTInductor] ")
    assert ("aten.bmm" in title) is (kind is not Kind.CHECK_INPUTS)
    first = text_of(facts).partition("Describe the bug")[2].strip().partition("\n")[0]
    assert "`aten.bmm`" in first
    assert first.endswith(".")


@pytest.mark.parametrize(
    ("given", "traits"),
    [
        ("args = (torch.zeros((2,), dtype=torch.int8),)", Traits("int8")),
        ("args = (torch.randn((2,)), torch.randn((2,)).to(torch.bfloat16))", Traits()),
        ("args = ()", Traits(dynamic=True)),
        ("# Made by: shrinkfx.minify(module, dynamic_shapes=...)\nargs = ()", Traits()),
        ("failing = (torch.randn((2,)), 3)", Traits()),
    ],
)
def test_issue_mentions_dtype_and_dynamic_shapes(given: str, traits: Traits) -> None:
    assert traits_of(given, dynamic=traits.dynamic) == traits
    size = ProgramSize(1, dynamic_dims=2 if traits.dynamic else 0)
    record = replace(RECORD, programs=replace(RECORD.programs, after=size))
    text = issue_text(facts_of(record), EXPLAINED, given, "")
    assert (" for int8 inputs: " in text and "on int8 tensors" in text) is bool(
        traits.dtype
    )
    assert ("dynamic shapes" in text.partition("```")[0]) is traits.dynamic


WRITES = """
class Repro(torch.nn.Module):
    def __init__(self):
        self.weight = torch.nn.Parameter(torch.ones((1,)), requires_grad=False)
        self.register_buffer("seen", torch.ones((1,)))

    def forward(self, x, y):
        return (torch.ops.aten.div_.Tensor({}, 1),)
"""


@pytest.mark.parametrize(
    ("operand", "writes"),
    [
        ("self.weight", "a parameter"),
        ("self.seen", "a buffer"),
        ("y", "an input"),
        ("made", ""),
    ],
)
def test_issue_names_the_kind_of_tensor_written_in_place(
    operand: str, writes: str
) -> None:
    said = "ValueError: no place"
    facts = replace(
        FACTS, kind=Kind.EXCEPTION, stage=Stage.RUN, message=said, writes=True
    )
    text = issue_text(facts, EXPLAINED, WRITES.format(operand), "")
    title = f" with {writes} written in place: no place" if writes else ": no place"
    assert text.partition("\n")[0].endswith(title)
    assert f"changes {writes or 'an input or a weight'} in place." in text
    assert "raises `ValueError` at run time" in text


# --- what is quoted


def test_script_is_quoted_without_header_and_source_locations() -> None:
    code = quote_script(SCRIPT)
    assert code.startswith("import torch\n")
    assert "model.py" not in code
    assert '"# no comment")\n' in code
    assert "# as it was" in code  # a preload's own


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        ("at /home/me/models/net.py:3", "at net.py:3"),
        ("in /x/lib/python3.11/site-packages/torch/_ops.py", "in torch/_ops.py"),
        ("/usr/lib/x86_64-linux-gnu/libcudnn.so.9", "libcudnn.so.9"),
        ("torch @ file:///home/me/wheels/torch.whl", "torch @ torch.whl"),
        ("g++ -I/home/me/v/include -L/home/me/lib", "g++ -Iinclude -Llib"),
        ("~/work/net.py and N/A", "net.py and N/A"),
        ("see https://pytorch.org/docs/main", "see https://pytorch.org/docs/main"),
        ("on gpu-17.acme.com (gpu-17)", "on HOST (HOST)"),
        ("usercopy/swapgs barriers", "usercopy/swapgs barriers"),
    ],
)
def test_paths_and_host_names_are_stripped(said: str, plain: str) -> None:
    assert strip_paths(said, ("gpu-17.acme.com", "gpu-17")) == plain


def test_collect_env_versions_omit_private_details() -> None:
    said = Collected(
        "PyTorch version: 2.13.0\nPython platform: Linux-6.8.0-acme-prod-x86_64-with-"
        "glibc2.36\ncuDNN version: Probably one of the following:\n"
        "/opt/acme/lib/libcudnn.so.9\nVulnerability Spectre v1: Mitigation\n"
        "[pip3] torch==2.13.0",
        ("gpu-17",),
    )
    assert environment_text(said.text, said.hosts).splitlines() == [
        "PyTorch version: 2.13.0",
        "Python platform: Linux-6.8.0-x86_64-with-glibc2.36",
        "cuDNN version: Probably one of the following:",
        "libcudnn.so.9",
        "[pip3] torch==2.13.0",
    ]


def test_error_log_begins_with_the_script_frame() -> None:
    log = error_log(LOG, "repro.py")
    assert log.splitlines()[:2] == [
        "Traceback (most recent call last):",
        '  File "repro.py", line 20, in <module>',
    ]
    assert "shrinkfx" not in log
    assert "Fatal Python error" not in log
    assert error_log("what():  index out of bounds\n", "repro.py").startswith("what()")
    assert len(error_log("a\n" * 500, "repro.py").splitlines()) == 61


WARNED = """\
/opt/python/lib/python3.11/copyreg.py:105: FutureWarning: LeafSpec is deprecated
  return cls.__new__(cls, *args)
W1123 03:12:22.000000 17 torch/_inductor/utils.py:1] not enough SMs
"""
DIED = """\
Fatal Python error: Segmentation fault

Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Current thread 0x00007f0000000002 (most recent call first):
  File "/home/me/site-packages/torch/_ops.py", line 1269 in __call__
  File "/tmp/abc/repro.py", line 20 in <module>
  File "<frozen runpy>", line 88 in _run_code
  File "/opt/x/shrinkfx/worker/__main__.py", line 9 in main

Extension modules: numpy._core._multiarray_umath (total: 40)
"""


def test_error_log_replaces_hashed_file_names() -> None:
    file = "csxmdr3at2nbnlu3tvmuwqgsopkdevhbey54wa62jfse5gtjrn6g"
    log = (
        f'/tmp/a/sx/{file}.kernel.cpp:13:24: error: no\n  File "/tmp/{file}.py", line 3'
    )
    assert error_log(log, "repro.py").splitlines() == [
        "generated.kernel.cpp:13:24: error: no",
        '  File "generated.py", line 3',
    ]


def test_error_log_of_a_crash_has_its_stack_and_no_warnings() -> None:
    assert error_log(WARNED + DIED, "repro.py", above=3).splitlines() == [
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread (most recent call first):",
        '  File "torch/_ops.py", line 1269 in __call__',
        '  File "repro.py", line 17 in <module>',
    ]
    said = error_log(f"{WARNED}what():  no\n{DIED}", "repro.py").splitlines()
    assert said[:2] == ["what():  no", "Fatal Python error: Segmentation fault"]
    assert error_log(WARNED + LOG, "repro.py") == error_log(LOG, "repro.py")
    assert error_log("Fatal Python error: Bus error\n", "repro.py")


WARNED_BY_GCC = """\
In file included from /opt/torch/include/vec512.h:10,
                 from /opt/torch/include/vec.h:7:
/opt/torch/include/vec512_qint.h:243:19: warning: overflow in conversion
  243 |       0xff, 0xff, 0xff, 0xff,
      |                   ^~~~
/opt/torch/include/vec512_qint.h: In instantiation of 'void f(T*) [with T = char]':
/opt/torch/include/vec512_qint.h:714:31:   required from here
/opt/torch/include/vec512_qint.h:1972:7: warning: overflow in conversion
 1972 |       0x80,
      |       ^~~~
/tmp/abc/model.kernel.cpp: In function 'void cpp_0(const float*)':
/tmp/abc/model.kernel.cpp:13:25: error: 'no_such' was not declared in this scope
   13 |             auto tmp1 = no_such(tmp0);
      |                         ^~~~~~~
"""


def test_error_log_of_a_compile_error_has_no_warnings() -> None:
    log = error_log(WARNED_BY_GCC, "repro.py").splitlines()
    assert log[0] == "model.kernel.cpp: In function 'void cpp_0(const float*)':"
    assert log[1].startswith("model.kernel.cpp:13:25: error: 'no_such' was not")
    assert len(log) == 4
    warnings = WARNED_BY_GCC.partition("/tmp/abc")[0] * 200
    verified = replace(RECORD.verified, log=warnings + WARNED_BY_GCC)
    assert "'no_such'" in facts_of(replace(RECORD, verified=verified)).log


@pytest.mark.parametrize("log", [WARNED, "", WARNED + DIED])
def test_error_log_of_a_crash_names_the_signal(log: str) -> None:
    crash = replace(FACTS, kind=Kind.CRASH, stage=Stage.RUN, message="SIGSEGV", log=log)
    text = text_of(crash).partition("### Error logs")[2].partition("### Versions")[0]
    assert "The process was killed by SIGSEGV." in text
    assert "Warning" not in text
    assert "not enough SMs" not in text


# --- what is left of a model


def test_model_remains_in_the_script_are_found() -> None:
    carried = PreloadBundle(kept={"/home/me/ops.py": "cut", "torchvision": "imported"})
    left = find_model_remains(SCRIPT, carried)
    assert left == ModelRemains(
        names=("token_ids", "decoder_embed_weight", "batch"),
        operators=("mine.mix",),
        constants=("0.125", "'# no comment'"),
        values=("unpack('aa', torch.int8, (2,))", "torch.tensor([[101, 7592]])"),
        sources=("ops.py",),
        places=("model.py", "decoder.attention"),
        header=("decoder.pt2",),
    )
    assert "names token_ids, decoder_embed_weight, batch, mine.mix" in left.in_words()


def test_anonymous_script_has_no_model_remains() -> None:
    plain = (
        "# Made by: shrinkfx MODEL.pt2 --preload ... --anonymous\n\n"
        "import torch\n\n\nclass Repro(torch.nn.Module):\n"
        "    def forward(self, x, arg0_1):\n"
        "        return torch.ops.aten.add.Tensor(x, 1)\nargs = (torch.zeros((2,)),)\n"
    )
    left = find_model_remains(plain, PreloadBundle())
    assert left == ModelRemains()
    assert left.in_words() == ""
    captured = plain.replace("MODEL.pt2 --preload ...", "--capture -- python serve.py")
    left = replace(
        find_model_remains(captured, PreloadBundle()), places=("serve.py", "head")
    )
    assert left.in_words() == "comments that name serve.py, head"


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("(torch.full((1,), 205.05, dtype=torch.float32),)", ["torch.full"]),
        ("(torch.full((64, 64), 2.0, dtype=torch.float32),)", []),
        ("(torch.full((1,), float('nan'), dtype=torch.float32),)", []),
        ("(torch.full((1,), -205.0, dtype=torch.float32),)", ["torch.full"]),
        ("(torch.full((1,), 0.03, dtype=torch.float32),)", ["torch.full"]),
        ("(torch.full((1,), -1000.0, dtype=torch.float32),)", []),
        ("(torch.full((1,), -1e30, dtype=torch.float32),)", []),
        ("(torch.full((1,), 1024, dtype=torch.int64),)", []),
        ("(torch.tensor([1000, 1024]),)", ["torch.tensor"]),
        ("(torch.ones((640,)), [3, {'a': -777}], 0.5)", ["777"]),
    ],
)
def test_specific_values_are_found_as_model_remains(
    given: str, values: list[str]
) -> None:
    left = find_model_remains(f"args = {given}\n", PreloadBundle())
    assert [value.partition("(")[0] for value in left.values] == values


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("shrinkfx m.pt2 --anonymous", "shrinkfx MODEL.pt2 --anonymous"),
        (
            "shrinkfx secret.pt2 --inputs a.pt --match 'my secret' --explain",
            "shrinkfx MODEL.pt2 --inputs ... --match ... --explain",
        ),
        (
            "shrinkfx --capture --out=secret -- python secret.py ...",
            "shrinkfx --capture --out -- ...",
        ),
        ("shrinkfx secret --program 2", "shrinkfx ... --program ..."),
        ("shrinkfx.minify(module, args=...)", "shrinkfx.minify(module, args=...)"),
        ("shrinkfx.minify('secret.pt2')", "shrinkfx.minify(...)"),
        ("make secret", "shrinkfx.minify(...)"),
    ],
)
def test_command_values_are_stripped_but_options_are_kept(
    command: str, shown: str
) -> None:
    assert strip_values(command) == shown


# --- those that were written of failures in which nothing is planted

ISSUES = sorted((Path(__file__).resolve().parents[2] / "repros").glob("*/ISSUE.md"))


@pytest.mark.parametrize("issue", ISSUES, ids=lambda path: path.parent.name)
def test_kept_issues_have_the_current_form(issue: Path) -> None:
    text = issue.read_text()
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads[0].startswith("# [AOTInductor] ")
    assert heads[1:] == ["### 🐛 Describe the bug", "### Error logs", "### Versions"]
    assert strip_paths(text) == text
    assert text.count("shrinkfx") == 1
    script, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert quote_script(script) == script


def test_at_least_three_issues_are_kept() -> None:
    assert len(ISSUES) >= 3


def test_gpu_is_listed_among_the_versions() -> None:
    of_gpu = ("GPU NVIDIA H100", "compute capability 9.0", "GPU memory 80 GiB")
    versions = ("torch 2.11.0", *of_gpu, "driver 580.95.05", "g++ 12.2.0")
    said = with_gpu("PyTorch version: 2.11.0", versions).splitlines()
    assert said == [
        "PyTorch version: 2.11.0",
        f"Seen on: {', '.join(of_gpu)}, driver 580.95.05",
    ]
    assert (
        with_gpu("PyTorch version: 2.11.0", versions[:1]) == "PyTorch version: 2.11.0"
    )
