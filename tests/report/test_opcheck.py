"""The lines of an issue that show an author what is wrong: pasted, and run in eager."""

from __future__ import annotations

import ast

import pytest
import torch

from shrinkfx.report.issue.script import OpcheckLines, write_opcheck

SCRIPT = """\
import torch


@torch.library.custom_op("{name}::turn", mutates_args=())
def turn(x: torch.Tensor, by: list[int], *, kind: torch.dtype) -> torch.Tensor:
    return {made}


@turn.register_fake
def _(x: torch.Tensor, by: list[int], *, kind: torch.dtype) -> torch.Tensor:
    return x.new_empty(x.shape)


class Repro(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones((4, 6)), requires_grad=False)

    def forward(self, y, x):
        {before}
        turn = torch.ops.{name}.turn.default({given}, [1, -1], kind=torch.float32)
        return (turn,)


args = (3, torch.randn((4, 6)))

model = Repro().eval()
with torch.no_grad():
    raise SystemExit("what is compiled comes here")
"""
LIES = {
    "strides": ("(x * 1).t().contiguous().t()", "Stride mismatch"),
    "shape": ("torch.cat([x, x])", "[sS]hape"),
    "dtype": ("x.double()", "dtype"),
}
COMPARES_STRIDES = pytest.mark.skipif(
    torch.__version__ < "2.13", reason="older PyTorch's opcheck compares no strides"
)
PLAIN = "torch.library.opcheck(\n    torch.ops.{}.turn.default,\n    ({}, [1, -1]),\n"


def run(script: str, pasted: OpcheckLines) -> None:
    """Run a script with lines put under an assignment of it, as an issue says."""
    ends = [
        node.end_lineno or 0
        for node in ast.parse(script).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == pasted.below
    ]
    rows = script.splitlines()
    text = "\n".join([*rows[: ends[-1]], pasted.text, *rows[ends[-1] :]])
    exec(compile(text, "repro.py", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(
    "wrong",
    [pytest.param("strides", marks=COMPARES_STRIDES), "shape", "dtype"],
)
@pytest.mark.parametrize(
    ("how", "given", "before", "plain"),
    [
        ("input", "x", "pass", "args[1]"),
        ("weight", "self.weight", "pass", "model.weight"),
        ("worked_out", "cos", "cos = torch.ops.aten.cos.default(x)", ""),
        ("written", "x", "torch.ops.aten.add_.Tensor(x, 1)", ""),
        ("bound_anew", "x", "x = torch.ops.aten.cos.default(x)", ""),
    ],
)
def test_pasted_opcheck_lines_fail_with_the_reported_mismatch(
    wrong: str, how: str, given: str, before: str, plain: str
) -> None:
    made, said = LIES[wrong]
    name = f"opcheck_{how}_{wrong}"
    script = SCRIPT.format(name=name, made=made, given=given, before=before)
    pasted = write_opcheck(f"{name}.turn.default", script)
    assert pasted is not None
    assert pasted.text.startswith(PLAIN.format(name, plain)) is bool(plain)
    with pytest.raises(Exception, match=f"test_faketensor failed with .*{said}"):
        run(script, pasted)


def test_script_continues_past_opcheck_for_a_fixed_operator() -> None:
    kinds = {"input": ("x", "pass"), "worked_out": ("cos", "cos = x.cos()")}
    for how, (given, before) in kinds.items():
        name = f"opcheck_mended_{how}"
        script = SCRIPT.format(name=name, made="x * 1", given=given, before=before)
        operator = f"{name}.turn.default"
        pasted = write_opcheck(operator, script)
        assert pasted is not None
        with pytest.raises(SystemExit, match="what is compiled"):
            run(script, pasted)
        restored = getattr(torch.ops, name).turn.default
        assert isinstance(restored, torch._ops.OpOverload)


CARRIES = """\
import torch


@torch.library.custom_op("opcheck_carried::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x])


double.register_fake(torch.empty_like)


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.ops.opcheck_carried.double(x.cos())


exported = torch.export.export(Net(), (torch.ones(3),))
model = exported.module(check_guards=False)
model._forward_pre_hooks.clear()
failing = (torch.ones(3),)
"""


def test_opcheck_lines_work_in_a_script_with_an_embedded_program() -> None:
    pasted = write_opcheck("opcheck_carried.double.default", CARRIES)
    assert pasted is not None
    assert pasted.below == "failing"
    with pytest.raises(Exception, match=r"test_faketensor failed with .*hape"):
        run(CARRIES, pasted)


def test_missing_operator_call_gives_no_opcheck_lines() -> None:
    given = {"name": "mine", "made": "x", "given": "x", "before": "pass"}
    script = SCRIPT.format(**given)
    assert write_opcheck("mine.other.default", script) is None
    assert write_opcheck("mine.turn.default", "import torch\n") is None
