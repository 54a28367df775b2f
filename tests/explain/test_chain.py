"""Chains of recorded failures: their steps, culprits and sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator
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
    """Read the file in one go before and after a change."""
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


def variants() -> Iterator[tuple[str, Chain]]:
    """Yield chains of recorded failures that differ from the recording in one fact."""
    yield from variants_of_indices()
    yield from variants_of_accesses()
    yield from variants_of_rejected_inputs()


def variants_of_indices() -> Iterator[tuple[str, Chain]]:
    known, said = recorded("pos")
    for left in ("cumsum add embedding", "ne add cumsum embedding"):
        cut = replace(known, candidate=cut_to(known.skeleton, *left.split()))
        yield f"pos: only {left} are left", index_chain(cut, said)
    anywhere = tuple(EagerRange(r.node, -99, 99) for r in known.recorded.eager)
    for name, eager in ("wide", anywhere), ("unknown", ()):
        other = replace(known, recorded=replace(known.recorded, eager=eager))
        yield f"pos: eager's ranges are {name}", index_chain(other, said)
    known, said = recorded("roll")
    (kernel,) = known.recorded.kernels
    for formula in ("9L", "9L + x1"):
        text = kernel.text.replace("9L + x1", formula)
        anatomy = replace(known.recorded, kernels=(replace(kernel, text=text),))
        yield (
            f"roll: the index is {formula}",
            index_chain(replace(known, recorded=anatomy), said),
        )
    known, said = recorded("emb")
    nodes = [known.skeleton.node(name) for name in known.skeleton.graph]
    whole = replace(nodes[3], name="tokens", value=TensorType("int64", ("5", "s77")))
    cut_off = replace(nodes[3], role=Role.OPERATOR, operands=("tokens",))
    nodes[3:4] = [whole, cut_off]
    of_cut = with_skeleton(known, Skeleton(nodes, known.skeleton.outputs))
    yield (
        "emb: a size of a cut value",
        index_chain(replace(of_cut, eager_fails=True), said),
    )
    kernel_name, silent = (
        known.recorded.kernels[0].name,
        replace(known, kernel_log=KernelLog()),
    )
    once = f"index out of bounds: 0 <= tmp9 < ks0\nException raised from {kernel_name}"
    yield "emb: one line checks the index", index_chain(silent, once)
    none = "index out of bounds: 0 <= tmp4 < 7L"
    yield "emb: several lines check the index", index_chain(silent, none)


def variants_of_accesses() -> Iterator[tuple[str, Chain]]:
    known, _ = recorded("hashf")
    access = known.recorded.out_of_bounds
    assert access is not None
    for offset, elements, lanes in ((12, 12, 4), (1, 1, 1), (-3, 12, 4), (5, 12, 4)):
        stray = replace(access, offset=offset, elements=elements, lanes=lanes)
        anatomy = replace(known.recorded, out_of_bounds=stray)
        yield (
            f"hashf: {lanes} lanes at {offset} of {elements}",
            access_chain(replace(known, recorded=anatomy)),
        )
    known, _ = recorded("clip")
    access = known.recorded.out_of_bounds
    assert access is not None
    stray = replace(access, made_up=True, shape=(1, 2, 3))
    anatomy = replace(known.recorded, out_of_bounds=stray)
    yield (
        "clip: the argument is generated",
        access_chain(replace(known, recorded=anatomy)),
    )
    known, _ = recorded("copy")
    yield from variants_of_copy(known)
    known, _ = recorded("cond")
    yield "cond: a line of a branch", access_chain(known)
    nodes = [known.skeleton.node(name) for name in known.skeleton.graph]
    alike = [
        replace(n, name="false_graph_0.expm1") if n.name == "false_graph_0.mul" else n
        for n in nodes
        if n.name != "false_graph_0"
    ]
    alike[-1:-1] = [replace(nodes[-2], operands=("false_graph_0.expm1",))]
    skeleton = Skeleton(alike, known.skeleton.outputs)
    yield (
        "cond: both branches have the operator",
        access_chain(with_skeleton(known, skeleton)),
    )


def variants_of_copy(known: CompiledView) -> Iterator[tuple[str, Chain]]:
    """Yield chains of crashes and assertions that a kernel's log or code decides."""

    def logged(text: str) -> CompiledView:
        return replace(known, kernel_log=KernelLog.read(text))

    kernel = known.recorded.kernels[0]
    ended = logged(f"launch {kernel.name} a=0x10\ndone x\n")
    yield "copy: an assertion outside kernels", assertion_chain(ended, "no")
    running = logged(f"launch {kernel.name} in_ptr0=0x10\n")
    for said in (
        "volatile float",  # of the main loop, or of its tail
        "inductor_cpu_throw_if_integer_div_error(",
        "what no line says",
    ):
        yield f"copy: the assertion {said}", assertion_chain(running, said)
    yield "copy: a crash after a kernel", access_chain(logged("launch k a=1\ndone k\n"))
    cut = logged("launch k a=0x10\ndone k\ncut\nfault 0x8 k 3\n")
    yield "copy: the log was cut", access_chain(cut)
    far = "in_ptr0=0x7f0000000000 in_ptr1=0x7f0000000800 out_ptr0=0x7f0000001000"
    for side, address in ("above", "0x7f8000000000"), ("below", "0x7e8000000000"):
        away = logged(f"launch {kernel.name} {far}\nfault {address} {kernel.name} 3\n")
        yield f"copy: the address is far {side}", access_chain(away)
    lines = kernel.text.split("\n")
    stores = next(n for n, text in enumerate(lines) if "(out_ptr0" in text)
    log = f"launch {kernel.name} in_ptr0=0x7f0000000000 out_ptr0=0x7e0000000000\n"
    behind = logged(f"{log}fault 0x7f00000001e0 {kernel.name} {stores}\n")
    for guarded in (True, False):
        later = access_chain(replace(behind, guarded=guarded))
        yield f"copy: the line follows the one that read, guarded: {guarded}", later
    line = next(n for n, text in enumerate(lines) if "volatile float" in text)
    report = MemoryReport("SEGV", "read", 4, kernel.name, kernel.first_line + line, "")
    yield "copy: the sanitizer names a line", access_chain(known, report)
    for name in (kernel.name, "cpp_fused_other_3"):
        at = replace(known, kernel_log=replace(known.kernel_log, at=(name, line)))
        yield f"copy: a thread was in {name}", access_chain(at)


def variants_of_rejected_inputs() -> Iterator[tuple[str, Chain]]:
    known, text = recorded("length")
    (symbol,) = known.recorded.symbols
    for last in ("s27 <= 16", "s27 <= s9"):
        guarded = replace(symbol, guards=("4 <= s27", last))
        anatomy = replace(known.recorded, symbols=(guarded,))
        yield (
            f"length: the guard {last}",
            refusal_chain(replace(known, recorded=anatomy), text),
        )
    anatomy = replace(known.recorded, guards_unknown="it was exported again")
    yield (
        "length: exported again",
        refusal_chain(replace(known, recorded=anatomy), text),
    )
    known, _ = recorded("emb")
    for said in (
        "input_handles[1]: dim value is too small at 0, expected it to be >= 2, "
        "but got: 1",
        "input_handles[0]: unmatched dim value at 1, expected: 6, but got: 5",
        "input_handles[1]: unmatched stride value at 0, expected: 5, but got: 1",
        "input_handles[0]: unmatched dtype, expected: 4(at::kLong), but got: 6",
        "expected size 4==5, stride 1==1 at dim=0",
    ):
        yield f"emb: {said}", refusal_chain(known, f"Error: {said}\n")


def with_skeleton(known: CompiledView, skeleton: Skeleton) -> CompiledView:
    """Return a view of another program."""
    return replace(known, candidate=replace(known.candidate, skeleton=skeleton))


def test_variants_match_the_golden_file(tmp_path: Path) -> None:
    """To record the texts again, copy the file that a failure names."""
    told = []
    for name, chain in variants():
        lines = [
            line
            for line in as_lines(chain)
            if not line.startswith(("steps: ", "inputs: ", "code: "))
        ]
        at_fault = [f"at fault: {line.text}" for line in chain.code if line.at_fault]
        told.append("\n".join([f"# {name}", *at_fault, *lines]))
    new = tmp_path / "chain_variants.txt"
    new.write_text("\n\n".join(told) + "\n")
    golden = Path(__file__).parents[1] / "golden" / "chain_variants.txt"
    assert new.read_text() == golden.read_text(), new


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
