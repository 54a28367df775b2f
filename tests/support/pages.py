"""Folders of runs, made without a compiler: all is real but the oracle's answers."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.chain import Chain, Limit, Step
from shrinkfx.findings.code import CodeLine
from shrinkfx.findings.decisions import Decisions, OptionSearch, Setting, SkippedPart
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.record import Explanation, Guide, Row
from shrinkfx.findings.record import Outcome as Flagged
from shrinkfx.journal.journal import Journal
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Node, Role, Skeleton
from shrinkfx.protocol.choices import Subsystem
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.staged import UnstagedSearch
from shrinkfx.search.strategy import choose
from shrinkfx.testing import PLANTED, FakeOracle, feed, operator, projection, skeleton

HEADS = ["q", "k", "v"]


def transformer(blocks: int) -> Skeleton:
    """Build a transformer with module scopes: 28 nodes a block, 19 of them operators.

    In the middle lies a chain of its own: ``tanh``, ``roll``, ``mul``.
    """
    nodes: dict[str, str | Node] = {"ids": "", "w": feed(Role.PARAMETER)}
    nodes["embedding"] = operator("w ids", scope="embed")
    last = "embedding"
    for number in range(blocks):
        if number == blocks // 2:
            for name in ("tanh", "roll", "mul"):
                nodes[name] = operator(last, scope="needle")
                last = name
        last = _block(nodes, number, last)
    nodes["linear"] = operator(last, scope="head")
    return skeleton(nodes)


def _block(nodes: dict[str, str | Node], number: int, last: str) -> str:
    """Add a block, and name its result."""

    def add(name: str, reads: str, module: str = "") -> str:
        full = f"{name}_{number}"
        path = ".".join(filter(None, (f"layers.{number}", module)))
        weight = f"p_{full}"
        if module:
            nodes[weight] = feed(Role.PARAMETER)
            reads = f"{reads} {weight}"
        nodes[full] = operator(reads, target=f"aten.{name}.default", scope=path)
        return full

    normed = add("layer_norm", last, "attention.norm")
    mixed = f"split_{number}"
    qkv = add("linear", normed, "attention.qkv")
    scope = f"layers.{number}.attention"
    nodes[mixed] = operator(qkv, target="aten.split.Tensor", value=None, scope=scope)
    turned = []
    for head in HEADS:
        nodes[f"getitem_{head}_{number}"] = projection(mixed)
        view = add(f"view_{head}", f"getitem_{head}_{number}", "")
        turned.append(add(f"transpose_{head}", view, ""))
    attended = add("scaled_dot_product_attention", " ".join(turned), "")
    back = add("reshape", add("transpose", attended, ""), "")
    projected = add("matmul", back, "attention.projection")
    added = add("add", f"{last} {projected}", "")
    again = add("native_layer_norm", added, "mlp.norm")
    wide = add("gelu", add("addmm", again, "mlp.up"), "")
    return add("sum", f"{added} {add('mm', wide, 'mlp.down')}", "")


def answer(candidate: Candidate) -> bool | Outcome:
    """Fail with ``roll`` and ``mul`` kept, and otherwise where only ``roll`` is."""
    kept = candidate.keep - {*candidate.replace}
    if {"roll", "mul"} <= kept:
        return True
    return Outcome.DIFFERENT if "roll" in kept else False


def searched(out: Path, program: Skeleton, model: str = "model.pt2") -> Path:
    """Reduce a program, and leave all that a run leaves of that, but for its repro.

    Returns:
        The folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    with closing(Journal(out / "journal.sqlite")) as journal:
        asked = {"model": f"/home/me/{model}", "preload": ["/home/me/ops.py", "mine"]}
        journal.note("run", {"options": {**asked, "command": f"shrinkfx {model}"}})
        journal.note("baseline", {})
        journal.note("program", program.to_json())
        asker = Asker(FakeOracle(answer), journal=journal)
        reducer = Reducer(Candidate.from_skeleton(program), asker, choose(None))
        UnstagedSearch(reducer).find()
        left = reducer.best
        noted = {"candidate": left.to_json(), "inputs": None, "environment": {}}
        journal.note("result", noted)
        journal.note("finished", {"said": "", "exit_code": 0, "budget": False})
    summary = {
        "status": "reduced",
        "kind": "assert",
        "failure": str(replace(PLANTED, text="index out of bounds: 0 <= tmp1 < 12L")),
        "signature": asdict(PLANTED),
        "operators": {
            "before": Candidate.from_skeleton(program).cost[0],
            "after": left.cost[0],
        },
        "checks": {"total": asker.budget.checks, "by_verdict": {}, "cached": 3},
        "seconds": 61.0,
        "cpu_seconds": {"baseline": 20.0, "search": 35.0, "overhead": 6.0},
        "minimal": True,
        "verified": {"runs": 3, "failed": 3},
        "versions": {"torch": "2.13.0"},
    }
    (out / "summary.json").write_text(json.dumps(summary))
    return out


SOURCE = f"{'c' * 52}.kernel.cpp"
"""A name as long as Inductor's are: a digest in base 32."""

KERNEL = """\
extern "C" void cpp_fused_mul_roll_0(const float* in_ptr0, float* out_ptr0)
{
    for(int64_t x0=0; x0<12; x0+=1)
    {
        auto tmp0 = 9L + x0;
        AOTI_TORCH_CHECK((0 <= tmp0) & (tmp0 < 12L), "index out of bounds");
        out_ptr0[x0] = in_ptr0[tmp0];
    }
}
"""


def explained(out: Path) -> Path:
    """Leave what is known of a cause, with the kernel's source."""
    roll = Operator("roll", "aten.roll.default", "model.py:14", "needle")
    mul = Operator("mul", "aten.mul.Tensor", "model.py:15", "needle")
    lines = KERNEL.splitlines()
    code = [CodeLine(i, lines[i - 1].strip(), i == 6) for i in (5, 6, 7)]
    chain = Chain(
        kernel="cpp_fused_mul_roll_0",
        launch=1,
        launches=1,
        fused=(roll, mul),
        code=tuple(code),
        index="tmp0",
        value=12,
        limit=Limit("12", "", 12),
        steps=(Step("tmp0 = 9L + x0", 12, (roll,)),),
        culprits=(roll,),
    )
    setting = Setting("epilogue_fusion", False, "fusing what comes after")
    left_out = SkippedPart(Subsystem.LOWERINGS, 1, 2, "aten.roll.default", alone=True)
    known = Explanation(
        cause=(
            "Index 12 of size 12 in aten.roll.default (model.py:14, module needle).",
        ),
        operators=(roll, mul),
        culprits=(roll,),
        unknown=("the original's kernel",),
        chain=chain,
        decisions=Decisions(OptionSearch(32, (setting,), minimal=True), (left_out,)),
        guide=Guide(
            (Row("CUDA_LAUNCH_BLOCKING=1", "", Flagged.NOT_TESTED, why="CPU"),)
        ),
    )
    (out / "explain.json").write_text(known.to_line())
    sources = out / "explain" / "sources"
    sources.mkdir(parents=True)
    (sources / SOURCE).write_text(f"// generated\n{KERNEL}")
    (out / "repro.py").write_text("# assert in AOTInductor\nimport torch\n")
    return out
