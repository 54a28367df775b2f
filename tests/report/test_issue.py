"""``ISSUE.md``: PyTorch's form, filled in from records, and fit to be shared."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.lies import strided, tensor

from shrinkfx.failure.readers.memory import MemoryReport
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.chain import Access, Chain
from shrinkfx.findings.code import CodeLine
from shrinkfx.findings.compiling import StopPoint
from shrinkfx.findings.decisions import Decisions, OptionSearch, Setting, SkippedPart
from shrinkfx.findings.decisions import format_decisions as decision_lines
from shrinkfx.findings.operators import Operator, OperatorMismatch, format_fails_alone
from shrinkfx.findings.record import EAGER_FAILS, Explanation, Outcome
from shrinkfx.findings.values import WrongValue
from shrinkfx.preloads.preload_bundle import CustomCompilerCode, PreloadBundle
from shrinkfx.protocol.answers import Collected
from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.kernel_values import Wrong
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
from shrinkfx.report.issue.script import (
    Traits,
    drop_comments,
    error_log,
    find_model_remains,
    quote_script,
    traits_of,
)
from shrinkfx.report.issue.text import IssueFacts, facts_of, issue_text, title_of
from shrinkfx.report.record import (
    EAGER_ALSO_FAILS,
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


GOLDEN = Path(__file__).parents[1] / "golden"


def text_of(facts: IssueFacts = FACTS, explanation: Explanation = EXPLAINED) -> str:
    return issue_text(facts, explanation, SCRIPT, "PyTorch version: 2.13.0")


def test_issue_matches_the_golden_file() -> None:
    """Read it in one go, and record it again where it is to change."""
    assert text_of() == (GOLDEN / "issue.md").read_text()


# --- other issues: the lines that differ from the golden file


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


WRITES = """
class Repro(torch.nn.Module):
    def __init__(self):
        self.weight = torch.nn.Parameter(torch.ones((1,)), requires_grad=False)
        self.register_buffer("seen", torch.ones((1,)))

    def forward(self, x, y):
        return (torch.ops.aten.div_.Tensor({}, 1),)
"""


Case = tuple[IssueFacts, Explanation] | tuple[IssueFacts, Explanation, str]

MIX = Operator("mix", "mine.mix.default", "model.py:8", "decoder")
RAISES = replace(
    FACTS,
    kind=Kind.EXCEPTION,
    stage=Stage.RUN,
    message="ValueError: no place for five.",
)
BUILT = SCRIPT + "model = Repro().eval()\n"


def of_mismatch(said: str = "lies", **more: Any) -> Explanation:
    """Blame an operator of the user's."""
    lie = OperatorMismatch(MIX, said, "/home/me/models/ops.py:12", **more)
    effect = (
        "Compiled code assumes that mine.mix returns what its fake kernel declares."
    )
    cause = (lie.sentence, *([] if lie.is_of_values else [effect]))
    return Explanation(cause=cause, culprits=(MIX,), mismatches=(lie,))


def stopped(
    doing: str, *code: CodeLine, message: str = "", kernel: str = ""
) -> StopPoint:
    return StopPoint((GUILTY,), doing, message=message, kernel=kernel, code=code)


def cases_of_cause() -> Iterator[tuple[str, Case]]:
    def case(name: str, facts: IssueFacts = FACTS, **known: Any) -> tuple[str, Case]:
        return name, (facts, replace(EXPLAINED, **known))

    kernel = "cpp_fused_add_cat_hypot_mul_native_layer_norm_sigmoid_split_5"
    yield case(
        "kernel with a long name", cause=(f"{GUILTY} in kernel {kernel} is wrong.",)
    )
    said = "The program was compiled for other inputs: x has strides [1, 2]."
    yield case("other inputs than compiled", inputs=said, cause=(said,), culprits=())
    unknown = ("which operator was rewritten", f"why {GUILTY} is lost: no trace")
    yield case("unknown facts", unknown=unknown)
    yield case("unknown facts beside a cause", inputs=said, unknown=unknown)
    yield case(
        "four culprits", culprits=tuple(Operator(n, f"aten.{n}") for n in "abcd")
    )
    flaky = replace(FACTS, rate=0.4, minimal=False, interpreted="sm_90")
    yield "no cause, flaky", (flaky, Explanation())
    halted = stopped("the run", message=RAISES.message)
    known: dict[str, Any] = {
        "cause": halted.cause,
        "compile_error": halted,
        "culprits": (),
    }
    yield case("cause that repeats the error", RAISES, **known)
    line = CodeLine(13, "x = no_such(y);", at_fault=True)
    text = "'no_such' was not declared in this scope"
    halted = stopped("C++ compilation", line, message=text, kernel="cpp_0")
    facts = replace(FACTS, kind=Kind.COMPILE_ERROR, stage=Stage.COMPILE, message=text)
    yield case(
        "cause with the failing line", facts, cause=halted.cause, compile_error=halted
    )
    yield case("fails alone", cause=(format_fails_alone(GUILTY),), culprits=())
    code = (CodeLine(1, "    {"), CodeLine(2, "        check(i < n);", at_fault=True))
    yield case("C++ code", compile_error=stopped("compiling", *code))
    facts = replace(FACTS, kind=Kind.NAN)
    yield case("NaN from a tiny error", facts, values=WrongValue(tiny=True))
    facts = replace(FACTS, kind=Kind.EXCEPTION, message="RuntimeError: no such dtype")
    before = WrongValue(culprits=(GUILTY,), without=(Operator("n", "aten.mm.default"),))
    yield case("error after a wrong result", facts, values=before)
    differs = "the result has dtype torch.float32 instead of torch.float16"
    of_dtype = replace(before, wrong=Wrong(metadata=differs))
    yield case("error after a wrong dtype", facts, values=of_dtype)
    unnamed = replace(before, culprits=())
    yield case("error after a wrong value", facts, values=unnamed, culprits=())
    unmarked = tuple(replace(line, at_fault=False) for line in code)
    alone = WrongValue(culprits=(GUILTY,), kernel="cpp_0", code=unmarked)
    yield case("kernel of a wrong value", values=alone)
    yield case("lines of a wrong value", values=replace(alone, code=code))
    failing = Chain(code=code)
    yield case("failing line after a wrong value", chain=failing, values=before)
    right = replace(of_mismatch(), values=replace(alone, code=code))
    yield "right kernel after a mismatch", (FACTS, right)
    access = Access("", "", None, None, None, address="0x8")
    yield case("line of an address", chain=Chain(code=code, access=access))
    code = (CodeLine(1, "    x = i"), CodeLine(2, "    tl.load(x)", at_fault=True))
    yield case("Triton code", compile_error=stopped("compiling", *code))
    part = SkippedPart(Subsystem.LOWERINGS, 2, 9, "aten.bmm.default", alone=True)
    decisions = Decisions(OptionSearch(tried=32), (part,))
    said = decision_lines(decisions, FACTS.failure)[0]
    yield case("a lowering", decisions=decisions, cause=(said,))
    setting = Setting("epilogue_fusion", False, "fusing")
    part = SkippedPart(Subsystem.POST_GRAD, 2, 9, "group_batch")
    decisions = Decisions(OptionSearch(32, (setting,), minimal=True), (part,))
    yield case("a pass and an option", decisions=decisions)
    own = Operator("bmm", "aten.bmm.default")
    lie = OperatorMismatch(own, "is torch.int8[2]", in_original=True)
    known = {"cause": (lie.sentence,), "culprits": (own,), "mismatches": (lie,)}
    yield case("fake kernel of PyTorch", **known)


_MESSAGES = {
    Kind.CRASH: "SIGSEGV",
    Kind.HANG: "did not end within the time limit",
    Kind.OOM: "grew beyond the memory limit",
    Kind.NAN: "output 0: 3 of 8 values are NaN, eager gives none",
    Kind.MISMATCH: "output 0: largest difference 0.5 at [1, 2]",
}
"""What a run says of a failure, for those that are no exception."""


def cases_of_facts() -> Iterator[tuple[str, Case]]:
    def case(name: str, facts: IssueFacts = FACTS, **known: Any) -> tuple[str, Case]:
        return name, (replace(facts, **known), EXPLAINED)

    yield case("unverified", runs=3, failed=1)
    yield case("not run", runs=0, failed=0)
    why = "not tested: minutes are short"
    claims = {"operators": "1-minimal", "sizes": why, "values": "kept", "dtypes": why}
    open_kinds = facts_of(replace(RECORD, search=replace(RECORD.search, kinds=claims)))
    yield case("kinds that were not tested", open_kinds)
    yield case("stopped early", open_kinds, stopped="the minutes are spent")
    said = (
        "interpreter: illegal memory access: out-of-bounds load of 4 bytes in "
        "triton_poi_fused_bmm_0 (aten.bmm) through in_ptr0 (x)"
    )
    known: dict[str, Any] = {"kind": Kind.IMA, "message": said, "environment": ("X",)}
    yield case("interpreter", **known, interpreted="sm_90")
    of_user = (
        "interpreter: illegal memory access: out-of-bounds load of 4 bytes in k_0 "
        "(user kernel k) through x"
    )
    yield case("user kernel", **known | {"message": of_user}, interpreted="sm_90")
    benchmarked = of_user.replace("x", "x (generated argument)")
    of_benchmark = known | {"message": benchmarked, "stage": Stage.COMPILE}
    yield case("benchmark", **of_benchmark, interpreted="sm_90")
    yield case("variable", **known)
    rejected = replace(EXPLAINED, cause=(EAGER_FAILS, *EXPLAINED.cause))
    of_inputs = replace(
        FACTS,
        kind=Kind.ASSERT,
        stage=Stage.RUN,
        message="index out of bounds: 0 <= tmp0 < 4",
        compared=False,
        caveats=OtherCauses(warnings=(f"{EAGER_ALSO_FAILS}IndexError: no 9",)),
    )
    yield "eager fails, too", (of_inputs, rejected)
    other = "The program was compiled for other inputs: x has strides [1, 2]."
    invalid = replace(rejected, inputs=other, cause=(other,), culprits=())
    yield "eager fails, too, at other inputs", (of_inputs, invalid)
    checks: dict[str, Any] = {
        "kind": Kind.CHECK_INPUTS,
        "environment": ("AOTI_RUNTIME_CHECK_INPUTS",),
    }
    yield case("input check", **checks)
    warnings = (
        "with CHECK=1 the program refuses its inputs (size 25==22); the inputs may be "
        "at fault. Other inputs: --inputs FILE; to reduce the refusal: --until x",
        "with CHECK=1 it fails otherwise: assert in run: expected size 4; what that "
        "names may be the cause. To reduce that instead: --until assert",
    )
    lies = (strided("mix", (1,), (2,), "my.mix.default"),)
    yield case("warnings", caveats=OtherCauses(lies, warnings=warnings))
    yield case("needs files", needed_files=("repro_inputs.pt",))
    yield case("other values in each run", varies=True)
    yield case("options", inductor="{'max_autotune': True}")
    yield case("tested with several versions", tested={"2.13.0": True, "2.14.0": False})
    for kind in Kind:
        if kind is not Kind.CHECK:
            said = _MESSAGES.get(kind, "RuntimeError: expected `size` 4")
            yield case(f"kind {kind}", kind=kind, stage=Stage.RUN, message=said)
    said = "RuntimeError: cond_true might be aliasing the input or the output!"
    yield case("a branch aliases", kind=Kind.COMPILE_ERROR, message=said)
    for effect in (False, None):
        facts = facts_with_own_code(effect)
        yield case(f"custom code, fails without it: {effect}", facts)
    found = replace(EXPLAINED, cause=(format_disappears_without(OWN), *EXPLAINED.cause))
    facts = facts_with_own_code(False, anonymous=True)
    yield "custom code, anonymous", (facts, found)
    dies = Signature(Kind.CRASH, Stage.COMPILE, "SIGSEGV", "SIGSEGV")
    for seen in (HANGS, dies):
        yield case(f"{seen.kind} in user code", stop_facts(seen))
    facts = stop_facts(HANGS, anonymous=True)
    said = format_stops_in_function(Kind.HANG, facts.inside)
    yield "hang in user code, anonymous", (facts, replace(EXPLAINED, cause=(said,)))


def cases_of_scripts() -> Iterator[tuple[str, Case]]:
    for given in (
        "args = (torch.zeros((2,), dtype=torch.int8),)",
        "args = (torch.randn((2,)), torch.randn((2,)).to(torch.bfloat16))",
        "failing = (torch.randn((2,)), 3)",
        "args = (torch.arange(3, dtype=torch.float32).as_strided((2,), (2,)),)",
    ):
        yield given, (FACTS, EXPLAINED, given)
    yield "dynamic shapes", (replace(FACTS, dynamic=True), EXPLAINED, "args = ()")
    for operand in ("self.weight", "self.seen", "y", "made"):
        facts = replace(RAISES, writes=True)
        yield f"writes to {operand}", (facts, EXPLAINED, WRITES.format(operand))


def cases_of_custom_operators() -> Iterator[tuple[str, Case]]:
    """An operator of the user's that nothing shows to be wrong."""
    facts = replace(RAISES, targets=("mine.mix.default", "aten.add.Tensor"))
    yield "custom operator", (facts, replace(EXPLAINED, cause=(), culprits=()))
    yield "culprit beside a custom operator", (facts, EXPLAINED)


def cases_for_authors() -> Iterator[tuple[str, Case]]:
    called = "when called with x=f32[2]"
    said = "has a fake kernel that declares f32[2], but its result is f32[3]"
    said = f"{said}, {called}"
    whole = OperatorFinding(
        *("mine.mix.default", Misbehavior.FAKE, "mix"),
        declared=tensor("f32", 64),
        made=tensor("f32", 96),
    )
    guards = "with CHECK=1 it fails otherwise: expected size 2==3: Error in op: "
    warnings = [f"{guards}torch.ops.mine.mix.default{n}; maybe" for n in ("", "_2")]
    others = strided("other", (1,), (2,), "my.other.default")
    facts = replace(FACTS, caveats=OtherCauses((others,), (whole,), tuple(warnings)))
    yield "author", (facts, of_mismatch(said))
    yield "author, anonymous", (replace(facts, anonymous=True), of_mismatch(said))
    interpreted = replace(FACTS, interpreted="sm_90")
    yield "author, interpreter", (interpreted, of_mismatch(said))
    interpreted = replace(interpreted, kind=Kind.COMPILE_ERROR)
    yield "author, compile error", (interpreted, of_mismatch(said))
    for what in (*VALUE_DEPENDENCIES, Misbehavior.WRITES):
        of = OperatorFinding("mine.mix.default", what, "mix", called, argument="x")
        yield f"author, {what}", (FACTS, of_mismatch(of.behavior_text, what=what))
    known = ("torch 2.13.0", "Python 3.11.7", "g++ 12.2.0", "on Linux x86_64")
    for name, made in {
        "shape": tensor("float32", 4, 7),
        "strides": tensor("float32", 4, 6, strides=(1, 4)),
    }.items():
        specs = {"declared": tensor("float32", 4, 6), "made": made}
        found = of_mismatch(f"differs from its fake kernel, {called}", **specs)
        yield f"author, {name}", (replace(FACTS, versions=known), found, BUILT)


CASES = [
    *cases_of_cause(),
    *cases_of_facts(),
    *cases_of_scripts(),
    *cases_of_custom_operators(),
    *cases_for_authors(),
]


def changed_lines(case: Case) -> str:
    """Return the lines of an issue that differ from the golden file."""
    facts, explanation, script = (*case, SCRIPT)[:3]
    text = issue_text(facts, explanation, script, "PyTorch version: 2.13.0")
    assert len(text) < 65_536
    assert text.count("shrinkfx") == 1
    for word in ("model.py", "decoder.attention", "/home/me", "/tmp/", "decoder.pt2"):
        assert word not in text, word
    if facts.anonymous:
        stated = text.partition("### Error logs")[0]
        assert not re.search(r"passes\.py|ops\.py|settle", stated)
    before = (GOLDEN / "issue.md").read_text().splitlines()
    lines = difflib.unified_diff(before, text.splitlines(), n=0, lineterm="")
    return "\n".join(
        line for line in lines if not line.startswith(("---", "+++", "@@"))
    )


def test_issues_match_the_golden_file(tmp_path: Path) -> None:
    """Read it in one go; to record it again, copy the file that a failure names."""
    parts = [f"=== {name}\n{changed_lines(case)}\n" for name, case in CASES]
    new = tmp_path / "issues.txt"
    new.write_text("\n".join(parts))
    assert new.read_text() == (GOLDEN / "issues.txt").read_text(), new


# --- titles, custom code, facts


def test_given_title_is_used() -> None:
    text = issue_text(FACTS, EXPLAINED, SCRIPT, "", "int8 bmm is int64")
    assert text.startswith("# int8 bmm is int64\n")


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


@pytest.mark.parametrize(
    "seen", [replace(HANGS, stage=Stage.RUN), replace(HANGS, kind=Kind.COMPILE_ERROR)]
)
def test_other_failures_are_not_attributed_to_user_code_on_the_stack(
    seen: Signature,
) -> None:
    assert not stop_facts(seen).inside


TWICE = "InductorError: AssertionError: both a fallback and a decomp for "


@pytest.mark.parametrize(
    ("own", "anonymous", "error", "title"),
    [
        (
            *(False, True, f"{TWICE}op"),
            "post_grad_custom_post_pass from a preload module: compile error in "
            "aten.bmm: both a fallback and a decomp for op",
        ),
        (
            *(False, True, f"{TWICE}same op: aten.lerp.Tensor"),
            "post_grad_custom_post_pass from a preload module: compile error in "
            "aten.bmm",
        ),
        (
            *(False, False, f"{TWICE}same op: aten.lerp.Tensor"),
            "post_grad_custom_post_pass from passes.py: compile error in aten.bmm",
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
    traits = Traits(dtype="float16", dynamic=True, strided=True)
    assert title_of(facts, EXPLAINED, traits) == title


def test_title_that_is_cut_ends_with_three_dots() -> None:
    facts = replace(FACTS, kind=Kind.COMPILE_ERROR, message="no " * 60)
    title = title_of(facts, EXPLAINED, Traits())
    assert title.endswith("no ...")
    assert len(title) <= 120
    opened = replace(facts, message=f"no match ({'int, ' * 30})")
    assert title_of(opened, EXPLAINED, Traits()).endswith(": no match ...")
    short = replace(FACTS, kind=Kind.COMPILE_ERROR, message="no such operator.")
    assert title_of(short, EXPLAINED, Traits()).endswith("no such operator")


def test_title_names_a_higher_order_operator_around_the_culprit() -> None:
    facts = replace(FACTS, targets=(*FACTS.targets, "cond"))
    assert " with cond" in title_of(facts, EXPLAINED, Traits())
    assert " with cond" not in title_of(FACTS, EXPLAINED, Traits())


def test_sentence_about_a_preload_starts_properly() -> None:
    assert format_disappears_without(OWN, anonymous=True).startswith(
        "A preload module sets "
    )
    assert format_disappears_without(OWN).startswith("passes.py sets ")


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
            ["m lowerings: a.a.default", "m decompositions: a.a.default (removed)"],
            "removes PyTorch's decomposition of a.a and registers a lowering of a.a",
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
        "my.passes defines the value of x.y and the decomposition of a.a; the failure "
        "disappears without that code."
    )
    assert format_disappears_without(found, anonymous=True).startswith(
        "A preload module defines the value of x.y "
    )


def test_script_that_is_too_long_is_attached() -> None:
    long = issue_text(FACTS, EXPLAINED, SCRIPT + "# x\n" * 9000, "")
    assert "The script is too long to quote and is attached" in long
    assert len(long) < 65_536


# --- what is quoted


def test_quoted_script_does_not_mention_shrinkfx() -> None:
    for advice in (" or `shrinkfx verify`", ", as above, or `shrinkfx verify`"):
        text = f'print("run it under compute-sanitizer{advice}")\n'
        assert quote_script(text) == 'print("run it under compute-sanitizer")\n'


def test_long_output_before_the_traceback_is_not_in_the_log() -> None:
    verified = replace(RECORD.verified, log="Error: no\n" * 9_000 + RECORD.verified.log)
    facts = facts_of(replace(RECORD, verified=verified))
    assert facts.log == facts_of(RECORD).log.strip()


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


def test_log_quotes_the_script_without_places_in_the_model() -> None:
    line = "roll = torch.ops.aten.roll.default(x, [1])"
    script = (
        "# Header\n\nimport torch\n\n\nclass Repro(torch.nn.Module):\n"
        f"    def forward(self, x):\n        {line}  # model.py:8, decoder\n"
    )
    log = f'  File "repro.py", line 8, in forward\n    {line}  # model.py:8, decoder'
    assert drop_comments(log, script) == log.removesuffix("  # model.py:8, decoder")


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


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ("0.0, eager gives nan", ": 0.0 instead of nan"),
        ("314159265, eager gives 3", ""),
    ],
)
def test_title_has_short_values(values: str, end: str) -> None:
    message = f"output 0: 1 of 1 elements differ, the first at [0]: {values}"
    facts = replace(FACTS, kind=Kind.MISMATCH, message=message)
    title = issue_text(facts, EXPLAINED, SCRIPT, "").partition("\n")[0]
    assert title == f"# [AOTInductor] wrong result of aten.bmm{end}"


@pytest.mark.parametrize(
    ("value", "what"), [("inf", "inf"), ("-inf", "inf"), ("(nan+infj)", "NaN")]
)
def test_title_states_whether_the_first_value_is_nan_or_inf(
    value: str, what: str
) -> None:
    message = (
        "output 0: 2 of 4 elements differ, the first non-finite one at [0, 1]: "
        f"{value}, eager gives 705.2841856367379"
    )
    facts = replace(FACTS, kind=Kind.NAN, message=message)
    text = issue_text(facts, EXPLAINED, SCRIPT, "")
    assert text.startswith(f"# [AOTInductor] {what} from aten.bmm\n")
    assert f"returns {what} where eager returns finite values." in text


def test_title_has_the_value_of_the_operator_that_is_wrong() -> None:
    message = "output 0: 1 of 1 elements differ, the first at [0]: inf, eager gives 1.0"
    facts = replace(FACTS, kind=Kind.MISMATCH, message=message)
    wrong = Wrong(wrong=1, of=1, first=(0,), got="0.0", expected="-0.0")
    explained = replace(EXPLAINED, values=WrongValue(wrong=wrong))
    title = issue_text(facts, explained, SCRIPT, "").partition("\n")[0]
    assert title.endswith("of aten.bmm: 0.0 instead of -0.0")


def test_graph_that_computes_a_wrong_result_is_quoted() -> None:
    line = CodeLine(1, "mul = torch.ops.aten.mul.Tensor(x, 3)")
    wrong = Wrong(wrong=1, of=1, first=(0,), got="3.0", expected="2.0")
    values = WrongValue(wrong=wrong, rewritten=True, code=(line,))
    explained = replace(EXPLAINED, values=values, cause=values.cause)
    text = issue_text(FACTS, explained, SCRIPT, "")
    assert f"The graph that Inductor lowers:\n\n```python\n{line.text}\n```\n" in text
    assert "Why Inductor generates this code" not in text
    code = (CodeLine(2, "assert(i < n);", at_fault=True),)
    stop = StopPoint(EXPLAINED.culprits, "lowering", code=code)
    before = replace(explained, compile_error=stop, values=replace(values, code=()))
    text = issue_text(FACTS, before, SCRIPT, "")
    assert "```cpp\nassert(i < n);  // <-- here\n```\n" in text
    assert "The graph that Inductor lowers:" not in text


@pytest.mark.parametrize(
    ("stage", "options", "what", "is_needed"),
    [
        (Stage.COMPILE, {"max_autotune": True}, "needs the Inductor options", True),
        (Stage.COMPARE, {"cpp.threads": 1}, "depends on the number of threads", True),
        (Stage.COMPARE, {"cpp.threads": 1, "fallback_random": True}, "", False),
    ],
)
def test_options_without_which_the_program_passes_are_in_the_title(
    stage: Stage, options: dict[str, object], what: str, *, is_needed: bool
) -> None:
    facts = replace(FACTS, stage=stage, inductor=repr(options))
    text = issue_text(facts, EXPLAINED, SCRIPT, "")
    title = text.partition("\n")[0]
    assert (f"The failure {what or 'needs'}" in text) is is_needed
    assert all(f"{k}={v}" in title for k, v in options.items()) is is_needed
    assert "Whether the failure needs another Inductor option or pass." in text


@pytest.mark.parametrize(
    ("outcome", "label", "sentence"),
    [
        (
            Outcome.SAME,
            "[Inductor]",
            "With torch.compile, the program fails in the",
        ),
        (Outcome.PASSES, "[AOTInductor]", "With torch.compile, the program passes."),
        (
            Outcome.OPEN,
            "[AOTInductor]",
            "- Whether the program fails with torch.compile",
        ),
    ],
)
def test_issue_states_whether_torch_compile_fails(
    outcome: Outcome, label: str, sentence: str
) -> None:
    explained = replace(EXPLAINED, torch_compile=outcome)
    text = issue_text(FACTS, explained, SCRIPT, "")
    assert text.startswith(f"# {label} wrong dtype of aten.bmm")
    assert sentence in text
    question = "- Whether the program fails with torch.compile"
    assert (question in text) is (outcome is Outcome.OPEN)


def test_dtypes_of_inputs_are_named() -> None:
    mask, index = (f"torch.zeros((2,), dtype=torch.{d})" for d in ("bool", "int64"))
    both, plain = f"args = ({mask}, {index})", f"args = ({index}, torch.ones((2,)))"
    assert traits_of(both, dynamic=False).dtype == "bool and int64"
    assert traits_of(f"args = ({index},)", dynamic=False).dtype == "int64"
    assert traits_of(plain, dynamic=False).dtype == ""


def test_value_that_is_written_through_views_is_named() -> None:
    views = """
        select = torch.ops.aten.select.int(y, 0, 0)
        t = torch.ops.aten.transpose.int(select, 0, 1)
        torch.ops.aten.add_.Tensor(t, 1)"""
    script = f"class Repro:\n    def forward(self, x, y):{views}\n"
    traits = traits_of(script, dynamic=False)
    assert (traits.writes, traits.written) == ("an input", "y")
    made = script.replace("aten.select.int", "aten.index_select.default")
    assert traits_of(made, dynamic=False).writes == ""


def test_zero_of_another_sign_is_not_called_wrong() -> None:
    message = "output 0: 1 of 1 elements differ, the first at [0]: inf, eager gives 1.0"
    facts = replace(FACTS, kind=Kind.MISMATCH, message=message)
    signs = Wrong(wrong=1, of=1, first=(0,), got="0.0", expected="-0.0", of_signs=True)
    values = WrongValue(wrong=signs, kernel="cpp_0", launch=1, agrees=True)
    explained = replace(EXPLAINED, values=values, cause=values.cause)
    text = issue_text(facts, explained, SCRIPT, "")
    title = text.partition("\n")[0]
    assert title.endswith("another sign of zero from aten.bmm: 0.0 instead of -0.0")
    assert "cpp_0 computes a result that differs from eager's: its inputs" in text
    assert "(in the sign of zero). Which sign is right is not determined." in text
    assert "The first different value is 0.0 at [0], where eager gives -0.0." in text


def test_conversion_of_a_value_that_does_not_fit_is_no_bug_in_pytorch() -> None:
    message = "output 0: 1 of 1 elements differ, the first at [0]: 127, eager gives -1"
    facts = replace(FACTS, kind=Kind.MISMATCH, message=message)
    unfit = Wrong(wrong=1, of=1, first=(0,), got="127", expected="-1", unfit="int8")
    values = WrongValue(wrong=unfit, kernel="cpp_0", launch=1, agrees=True)
    explained = replace(EXPLAINED, values=values, cause=values.cause)
    text = issue_text(facts, explained, SCRIPT, "")
    assert text.startswith("# different results of aten.bmm: 127, in eager -1\n")
    assert "do not file this as it is.** The script converts values to int8" in text
    assert "cpp_0 computes a result that differs from eager's: its inputs" in text
    assert "Some of the converted values do not fit int8;" in text


def test_kernel_that_reads_out_of_bounds_is_shown_where_it_runs() -> None:
    mismatch = OperatorMismatch(MIX, "reads out of bounds", what=Misbehavior.STRAYS)
    explained = replace(EXPLAINED, culprits=(MIX,), mismatches=(mismatch,))
    on_cpu = issue_text(FACTS, explained, SCRIPT, "")
    assert "in eager with the arguments of the script below, either under" in on_cpu
    facts = replace(FACTS, interpreted="sm_90")
    on_gpu = issue_text(facts, explained, SCRIPT, "")
    assert "Run the script below on a GPU, under compute-sanitizer.\n" in on_gpu


def test_title_keeps_the_class_of_a_key_error() -> None:
    message = "InductorError: LoweringException: KeyError: -1 (aten.cumsum.default)"
    facts = replace(FACTS, kind=Kind.COMPILE_ERROR, message=message)
    assert "KeyError: -1 (aten.cumsum" in issue_text(facts, EXPLAINED, SCRIPT, "")[:150]


PRINTED_BY_A_KERNEL = (
    "/tmp/abc.py:43: unknown: block: [0,0,0], thread: [0,0,0] Assertion `x > 0` failed."
)


def test_error_log_of_a_kernel_has_its_assertion_and_not_the_abort_that_follows() -> (
    None
):
    aborts = "terminate called after throwing an instance of 'c10::AcceleratorError'\n"
    died = f"{LOG}{aborts}frame #0: python3() [0x59f273]\n{DIED}"
    verified = replace(RECORD.verified, log=f"{PRINTED_BY_A_KERNEL}\n" * 40 + died)
    facts = facts_of(replace(RECORD, verified=verified))
    log = error_log(facts.log, "repro.py")
    assert log.startswith(PRINTED_BY_A_KERNEL.replace("/tmp/", ""))
    assert log.partition("\n")[2] == error_log(LOG, "repro.py")


@pytest.mark.parametrize("kind", [Kind.IMA, Kind.MISMATCH])
def test_issue_does_not_claim_that_a_memory_fault_needs_variables(kind: Kind) -> None:
    facts = replace(FACTS, kind=kind, environment=("CUDA_LAUNCH_BLOCKING",))
    text = issue_text(facts, EXPLAINED, SCRIPT, "")
    assert ("The failure needs `CUDA_LAUNCH_BLOCKING`" in text) == (kind != Kind.IMA)
    assert ("The script sets `CUDA_LAUNCH_BLOCKING`." in text) == (kind == Kind.IMA)


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
    start, name = "Fatal Python error: ", "Segmentation fault"
    of_two_threads = DIED.replace(start + name, 2 * start + 2 * name)
    assert error_log(of_two_threads, "repro.py") == error_log(DIED, "repro.py")


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


def test_error_log_begins_with_the_report_of_the_sanitizer() -> None:
    report = MemoryReport("heap-buffer-overflow", "read", 64, "cpp_fused_0", 27, "")
    memory = replace(RECORD.memory, report=report)
    log = facts_of(replace(RECORD, memory=memory)).log
    assert log.startswith("Observed under AddressSanitizer: heap-buffer-overflow: read")
    assert "Observed under" not in facts_of(RECORD).log


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
    assert heads[0].startswith(("# [AOTInductor] ", "# [Inductor] "))
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
