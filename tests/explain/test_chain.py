"""Chains of failures as minima have left them: who is guilty, and what is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.explain.chain import follow_failure
from shrinkfx.explain.compiled_view import (
    CompiledView,
    FailingKernel,
    KernelLog,
    find_line_operators,
)
from shrinkfx.failure.readers.generated import Code
from shrinkfx.failure.readers.memory import MemoryReport
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.findings.chain import Chain
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.record import Explanation, explanation_lines
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.skeleton import Role, Skeleton, TensorType
from shrinkfx.protocol.compiled_program_view import (
    Anatomy,
    EagerRange,
    KernelText,
    LineOrigin,
)
from shrinkfx.protocol.record import Message

FAILURE = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> tuple[CompiledView, str]:
    """Read what the worker had left of a failing run, and what that had said."""
    data: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    known = CompiledView(
        Anatomy.from_json(data["anatomy"]),
        cut_to(Skeleton.from_json(data["skeleton"]), *data["left"]),
        KernelLog.read(data["telling"]),
    )
    return known, data["said"]


def cut_to(program: Skeleton, *left: str) -> Candidate:
    return Candidate(program, frozenset(left), {}, Outputs.SINKS)


EAGER_FAILS = {"bag", "emb", "vec"}
"""Eager rejects the index as well."""


def chain_of(name: str) -> Chain:
    """Follow a recorded failure."""
    known, said = recorded(name)
    known = replace(known, eager_fails=name in EAGER_FAILS)
    if "out of bounds: 0" in said:
        return index_chain(known, said)
    return (
        refusal_chain(known, said) if "input_handles" in said else access_chain(known)
    )


def index_chain(known: CompiledView, said: str) -> Chain:
    return follow_failure(known, FAILURE, said)


def access_chain(known: CompiledView, report: MemoryReport | None = None) -> Chain:
    crash = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT)
    return follow_failure(known, crash, "", report)


def assertion_chain(known: CompiledView, message: str) -> Chain:
    failure = Signature(Kind.ASSERT, Stage.RUN, "no index", message)
    return follow_failure(known, failure, "")


def refusal_chain(known: CompiledView, said: str) -> Chain:
    return follow_failure(known, Signature(Kind.CHECK_INPUTS, Stage.RUN), said)


def as_text(value: Any) -> str:
    """Write a value of a record in one line, without what is empty."""
    if isinstance(value, tuple):
        return ", ".join(map(as_text, value))
    if not isinstance(value, Message) or isinstance(value, Operator):
        return str(value)
    pairs = value.to_json().items()
    return f"({' '.join(f'{k}={as_text(v)}' for k, v in pairs if v not in EMPTY)})"


EMPTY: tuple[Any, ...] = (None, "", (), 0, False)


def as_lines(chain: Chain) -> list[str]:
    """Write what a chain tells, one fact a line."""
    lines = []
    for name, value in chain.to_json().items():
        items = value if name in ("code", "steps", "cause", "unknown") else (value,)
        if value not in EMPTY:
            lines += [f"{name}: {as_text(item)}" for item in items]
    return lines


NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))


def test_chains_match_the_golden_file() -> None:
    """Read it in one go, and record it again where it is to change."""
    told = [f"# {name}\n" + "\n".join(as_lines(chain_of(name))) for name in NAMES]
    golden = Path(__file__).parents[1] / "golden" / "chains.txt"
    assert "\n\n".join(told) + "\n" == golden.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_chain_is_written_and_shown(name: str) -> None:
    told = Explanation(chain=chain_of(name))
    assert told.chain is not None
    assert Explanation.from_line(told.to_line()) == told
    assert len(told.chain.cause) <= 3
    lines = explanation_lines(told, FAILURE)
    shown = [line for line in lines if line.startswith("code: ")]
    at_fault = [line.text.strip() for line in told.chain.code if line.at_fault]
    assert len(shown) == len(at_fault)
    assert all(text[:40] in line for text, line in zip(at_fault, shown, strict=True))


def culprit_names(chain: Chain) -> list[str]:
    return [operator.operator for operator in chain.culprits]


def at_fault(chain: Chain) -> str:
    (line,) = [line.text for line in chain.code if line.at_fault]
    return line.strip()


def test_earlier_kernel_is_culprit_of_wrong_index() -> None:
    known, said = recorded("pos")
    left = cut_to(known.skeleton, "cumsum", "add", "embedding")
    known = replace(known, candidate=left)
    chain = index_chain(known, said)
    assert culprit_names(chain) == ["aten.cumsum.default"]
    assert (chain.value, chain.limit and chain.limit.value) == (10, 10)
    assert (chain.launch, chain.launches) == (2, 2)
    assert (
        "are within 1..8; compiled code computes 9: aten.cumsum.default is wrong."
        in chain.cause[-1]
    )
    assert "aten.embedding.default (own2.py:12, t) of weight t.weight" in chain.cause[0]
    assert "(tmp5 < 10L)" in at_fault(chain)
    assert [s.value for s in chain.steps if s.reads] == [8]


def test_line_belongs_only_to_the_operator_it_was_generated_for() -> None:
    known, _ = recorded("pos")
    lines = ["{", "    auto tmp2 = tmp0 + tmp1;", "    auto tmp12 = tmp0 + tmp1;"]
    lines += ["    auto tmp2 = tmp0 + tmp1 + tmp3;"]
    lines += [
        f'    AOTI_TORCH_CHECK(tmp2 < {n}, "index out of bounds: tmp2 < {n}")'
        for n in ("1", "12")
    ]
    origins = (
        LineOrigin("tmp2", "tmp0 + tmp1", ("ne",)),
        LineOrigin("tmp12", "tmp0 + tmp1", ("add",)),
        LineOrigin("", lines[5].strip(), ("embedding",)),
    )
    kernel = KernelText("cpp_fused_0", "\n".join(lines), origins)
    failing = FailingKernel(kernel, Code(kernel.text), None, {}, Chain())
    found = [find_line_operators(known, failing, n) for n in range(6)]
    names = [[operator.name for operator in operators] for operators in found]
    assert names == [[], ["ne"], ["add"], [], [], ["embedding"]]


def test_operator_before_a_cut_is_not_a_culprit() -> None:
    known, said = recorded("pos")
    left = (name for name in known.left if name != "_to_copy")
    apart = replace(known, candidate=cut_to(known.skeleton, *left))
    assert "ne" in apart.left
    chain = index_chain(apart, said)
    assert culprit_names(chain) == ["aten.cumsum.default"]
    assert chain.cause[-1].endswith(": aten.cumsum.default is wrong.")


def test_replaced_operator_appears_under_its_new_target() -> None:
    known, said = recorded("pos")
    simple = {"_to_copy": "ne"}
    candidate = replace(known.candidate, replace=simple).normalised()
    replaced = replace(known, candidate=candidate)
    (now,) = replaced.operators(["_to_copy"])
    assert now.operator == candidate.target("_to_copy") != "aten._to_copy.default"
    assert not now.line
    # A value that was cut off was made by what was there.
    given = replace(known.recorded.inputs[0], name="_to_copy")
    assert known.layout_of(given) == replaced.layout_of(given)
    chain = index_chain(replaced, said)
    assert now in chain.culprits


@pytest.mark.parametrize(
    ("formula", "named"),
    [
        ("9L", ["aten.flip.default", "aten.roll.default"]),
        ("9L + x1", ["aten.roll.default"]),
    ],
)
def test_constant_index_may_belong_to_a_fused_operator(
    formula: str, named: list[str]
) -> None:
    """``roll`` reads ``flip``."""
    known, said = recorded("roll")
    (kernel,) = known.recorded.kernels
    kernel = replace(kernel, text=kernel.text.replace("9L + x1", formula))
    known = replace(known, recorded=replace(known.recorded, kernels=(kernel,)))
    chain = index_chain(known, said)
    assert culprit_names(chain) == named
    assert ("a constant at these sizes" in chain.cause[-1]) == (formula == "9L")


def with_skeleton(known: CompiledView, skeleton: Skeleton) -> CompiledView:
    """Have it be about another program."""
    return replace(known, candidate=replace(known.candidate, skeleton=skeleton))


def test_size_of_cut_value_is_traced_to_the_input_program() -> None:
    known, said = recorded("emb")
    nodes = [known.skeleton.node(name) for name in known.skeleton.graph]
    whole = replace(nodes[3], name="tokens", value=TensorType("int64", ("5", "s77")))
    cut = replace(nodes[3], role=Role.OPERATOR, operands=("tokens",))
    nodes[3:4] = [whole, cut]
    skeleton = Skeleton(nodes, known.skeleton.outputs)
    known = replace(known, eager_fails=True)
    chain = index_chain(with_skeleton(known, skeleton), said)
    assert chain.limit is not None
    (symbol,) = chain.limit.symbols
    assert (symbol.input, symbol.dim) == ("x", 0)
    assert (symbol.whole_input, symbol.whole_dim) == ("tokens", 1)
    assert "2..64, dim 1 of tokens in the input program" in chain.cause[1]


def test_value_within_eager_range_does_not_single_out_a_culprit() -> None:
    """A value within eager's range may be wrong all the same, but not surely."""
    known, said = recorded("pos")
    anywhere = tuple(EagerRange(r.node, -99, 99) for r in known.recorded.eager)
    known = replace(known, recorded=replace(known.recorded, eager=anywhere))
    assert culprit_names(index_chain(known, said)) != ["aten.cumsum.default"]
    unknown = replace(known, recorded=replace(known.recorded, eager=()))
    chain = index_chain(unknown, said)
    assert set(culprit_names(chain)) >= {
        "aten.cumsum.default",
        "aten.embedding.default",
    }
    assert len(chain.cause) == 2


def test_ambiguous_line_is_not_guessed() -> None:
    known, _ = recorded("emb")
    kernel = known.recorded.kernels[0].name
    known = replace(known, kernel_log=KernelLog())
    once = f"index out of bounds: 0 <= tmp9 < ks0\nException raised from {kernel}"
    chain = index_chain(known, once)
    assert "(tmp9 < ks0)" in at_fault(chain)
    assert chain.unknown == ("the index value: the run did not report it",)
    assert chain.cause[0].startswith("Index tmp9 is out of bounds for size ks0")
    none = index_chain(known, "index out of bounds: 0 <= tmp4 < 7L")
    assert none.unknown
    assert not none.cause


@pytest.mark.parametrize(
    ("offset", "elements", "lanes", "said"),
    [
        (
            12,
            12,
            4,
            "in_ptr1 at index 12, but in_ptr1 has only 12 elements (4 lanes of",
        ),
        (1, 1, 1, "in_ptr1 at index 1, but in_ptr1 has only 1 element (1 lane"),
        (
            -3,
            12,
            4,
            "in_ptr1 at index -3, but in_ptr1 has only 12 elements (4 lanes of",
        ),
        (5, 12, 4, "in_ptr1 at index 5, which has 12 elements (4 lanes"),
    ],
)
def test_out_of_bounds_access_names_index_and_element_count(
    offset: int, elements: int, lanes: int, said: str
) -> None:
    known, _ = recorded("hashf")
    assert known.recorded.out_of_bounds is not None
    stray = replace(
        known.recorded.out_of_bounds, offset=offset, elements=elements, lanes=lanes
    )
    known = replace(known, recorded=replace(known.recorded, out_of_bounds=stray))
    assert any(said in text for text in access_chain(known).cause)


def test_generated_benchmark_argument_is_described_as_generated() -> None:
    """Kernels are timed on such while a program is compiled."""
    known, _ = recorded("clip")
    assert known.recorded.out_of_bounds is not None
    stray = replace(known.recorded.out_of_bounds, made_up=True, shape=(1, 2, 3))
    anatomy = replace(known.recorded, out_of_bounds=stray)
    (said,) = access_chain(replace(known, recorded=anatomy)).cause
    assert said.startswith("When AOTInductor benchmarks kernels with generated")
    assert "source was generated for " in said
    assert "computed by aten.mul.Tensor" in said


def test_assertion_outside_kernels_has_no_culprit() -> None:
    known, _ = recorded("copy")
    done = KernelLog.read("launch cpp_fused_abs_copysign_sub_0 a=0x10\ndone x\n")
    chain = assertion_chain(replace(known, kernel_log=done), "no")
    assert not chain.culprits
    assert chain.unknown == ("which kernel: no kernel contains the assertion",)


def test_kernel_assertion_is_traced_to_its_line() -> None:
    known, _ = recorded("copy")
    running = KernelLog.read("launch cpp_fused_abs_copysign_sub_0 in_ptr0=0x10\n")
    known = replace(known, kernel_log=running)
    chain = assertion_chain(known, "volatile float")
    assert chain.code == ()  # one of two lines: that of the loop, or of its tail
    assert culprit_names(chain) == ["aten.copysign.Tensor"]
    assert (chain.launch, chain.launches) == (1, 1)
    assert chain.cause == (
        "Code for aten.copysign.Tensor (own2.py:23) in kernel "
        "cpp_fused_abs_copysign_sub_0 fails an assertion: volatile float.",
    )
    once = assertion_chain(known, "inductor_cpu_throw_if_integer_div_error(")
    assert at_fault(once).startswith("inductor_cpu_throw_if_integer_div_error(")
    chain = assertion_chain(known, "what no line says")
    assert (chain.code, chain.culprits) == ((), chain.fused)
    assert len(chain.fused) > 1


def test_crash_outside_kernels_names_the_last_launch() -> None:
    known, _ = recorded("copy")
    done = KernelLog.read("launch k a=0x10\ndone k\n")
    chain = access_chain(replace(known, kernel_log=done))
    assert "the crash is outside the generated kernels, after k" in chain.unknown[0]
    assert not chain.cause


def test_kernel_is_not_guessed_if_the_launch_log_was_cut() -> None:
    known, _ = recorded("copy")
    many = KernelLog.read("launch k a=0x10\ndone k\ncut\nfault 0x8 k 3\n")
    chain = access_chain(replace(known, kernel_log=many))
    assert chain.unknown == (
        "which kernel: the program has too many launches to trace",
    )
    assert not chain.culprits


def test_line_in_a_branch_belongs_to_the_branch_operator() -> None:
    known, _ = recorded("cond")
    chain = access_chain(known)
    assert [o.name for o in chain.culprits] == ["true_graph_0.expm1"]
    assert chain.fused == chain.culprits
    assert "Code for aten.expm1.default (make.py:27, needle)" in chain.cause[0]
    nodes = [known.skeleton.node(name) for name in known.skeleton.graph]
    alike = [
        replace(n, name="false_graph_0.expm1") if n.name == "false_graph_0.mul" else n
        for n in nodes
        if n.name != "false_graph_0"
    ]
    alike[-1:-1] = [replace(nodes[-2], operands=("false_graph_0.expm1",))]
    skeleton = Skeleton(alike, known.skeleton.outputs)
    chain = access_chain(with_skeleton(known, skeleton))
    assert culprit_names(chain) == ["cond"]


def test_line_named_by_the_sanitizer_is_quoted() -> None:
    known, _ = recorded("copy")
    kernel = known.recorded.kernels[0]
    lines = kernel.text.split("\n")
    line = next(n for n, text in enumerate(lines) if "volatile float" in text)
    number = kernel.first_line + line
    report = MemoryReport("SEGV", "read", 4, kernel.name, number, "")
    chain = access_chain(known, report)
    assert "volatile float" in at_fault(chain)
    assert culprit_names(chain) == ["aten.copysign.Tensor"]


def test_line_executing_at_the_crash_is_quoted() -> None:
    known, _ = recorded("copy")
    kernel = known.recorded.kernels[0]
    lines = kernel.text.split("\n")
    line = next(n for n, text in enumerate(lines) if "volatile float" in text)
    known = replace(known, kernel_log=replace(known.kernel_log, at=(kernel.name, line)))
    chain = access_chain(known)
    assert "volatile float" in at_fault(chain)
    assert culprit_names(chain) == ["aten.copysign.Tensor"]
    # A thread that has done nothing in this kernel tells of another one.
    known = replace(
        known, kernel_log=replace(known.kernel_log, at=("cpp_fused_other_3", line))
    )
    assert access_chain(known).unknown


@pytest.mark.parametrize(
    ("guards", "said"),
    [
        (("4 <= s27", "s27 <= 16"), "The model requires s27 <= 16: "),
        (
            ("4 <= s27", "s27 <= s9"),
            "The model's guards on this size are 4 <= s27, s27 ",
        ),
    ],
)
def test_guard_that_rejects_an_input_is_quoted_without_its_line(
    guards: tuple[str, ...], said: str
) -> None:
    known, text = recorded("length")
    (symbol,) = known.recorded.symbols
    guarded = replace(symbol, guards=guards)
    known = replace(known, recorded=replace(known.recorded, symbols=(guarded,)))
    chain = refusal_chain(known, text)
    assert chain.cause[2].startswith(said)
    assert "without their lines" in chain.unknown[0]


def test_guards_are_unknown_for_a_reexported_program() -> None:
    known, text = recorded("length")
    anew = replace(known.recorded, guards_unknown="it was exported anew")
    chain = refusal_chain(replace(known, recorded=anew), text)
    assert len(chain.cause) == 2
    assert chain.unknown[0].endswith("if one does: it was exported anew")


@pytest.mark.parametrize(
    ("said", "name", "dim", "expected", "given", "symbols"),
    [
        (
            "input_handles[1]: dim value is too small at 0, expected it to be >= 2, "
            "but got: 1",
            *("x", 0, ">= 2", "1", ["s77"]),
        ),
        (
            "input_handles[0]: unmatched dim value at 1, expected: 6, but got: 5",
            *("ids", 1, "6", "5", []),
        ),
        (
            "input_handles[1]: unmatched stride value at 0, expected: 5, but got: 1",
            *("x", 0, "5", "1", []),
        ),
        (
            "input_handles[0]: unmatched dtype, expected: 4(at::kLong), but got: 6",
            *("ids", None, "4(at::kLong)", "6", []),
        ),
    ],
)
def test_input_rejection_message_is_parsed(
    said: str,
    name: str,
    dim: int | None,
    expected: str,
    given: str,
    symbols: list[str],
) -> None:
    known, _ = recorded("emb")
    refusal = refusal_chain(known, f"Error: {said}\n").refusal
    assert refusal is not None
    assert refusal.input is not None
    assert (refusal.input.name, refusal.dim) == (name, dim)
    assert (refusal.expected, refusal.actual) == (expected, given)
    assert [symbol.name for symbol in refusal.symbols] == symbols


def test_rejection_without_an_input_name_is_unknown() -> None:
    known, _ = recorded("emb")
    chain = refusal_chain(known, "expected size 4==5, stride 1==1 at dim=0")
    assert chain.refusal is None
    assert chain.unknown


def test_truncated_kernel_log_is_parsed() -> None:
    told = KernelLog.read("launch k in_ptr0=0x10 ks0=3\nrefused k 7 tmp1=5 ks0=3 tm")
    assert told.running == 0
    assert told.refused == ("k", 7, {"tmp1": 5, "ks0": 3})
    assert KernelLog.read("").launches == ()
    died = KernelLog.read("launch k a=1\ndone k\nfault 0x8 k 17\nlaunch j")
    assert (died.fault, died.at, died.running) == ("0x8", ("k", 17), None)
    assert KernelLog.read("fault 0x8 ? -1").at is None
    # What has thrown has not ended.
    assert KernelLog.read("launch k a=1\ndone k\nlaunch j a=1\nthrew j\n").running == 1
