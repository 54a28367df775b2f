"""A module in memory, all the way to an issue that says nothing else of its model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import shrinkfx
from shrinkfx import api
from shrinkfx.errors import Finished


class Gated(nn.Module):
    """Scales its weight in place, which AOTInductor makes another result of.

    Not planted (``repros/wild_rwkv_parameter_written``).
    """

    def __init__(self) -> None:
        super().__init__()
        self.gate_scale = nn.Parameter(torch.ones(3, 4), requires_grad=False)

    def forward(self, token_states: Tensor) -> Tensor:
        self.gate_scale.div_(2.0)
        return token_states.tanh() + self.gate_scale


@pytest.mark.aoti
@pytest.mark.every_run
def test_module_in_memory_becomes_an_anonymous_issue(tmp_path: Path) -> None:
    out = tmp_path / "out"
    reduction = shrinkfx.minify(
        Gated().eval(),
        args=(torch.ones(3, 4),),
        out=out,
        keep="all",  # so that names are those of the graph, before they are changed
        anonymous=True,
        title="a parameter that is written becomes a result",
    )
    assert reduction.status == "reduced"
    assert reduction.operators[1] == 1
    assert reduction.verified == (3, 3)
    script, issue = reduction.repro.read_text(), (out / "ISSUE.md").read_text()
    assert reduction.issue == out / "ISSUE.md"
    page = (out / "report.html").read_text()
    assert "# Made by: shrinkfx.minify(module, args=...)\n" in script
    for text in (script, issue, page, api.report(out).read_text()):
        for word in ("gate_scale", "token_states", "Gated", "test_real_object"):
            assert word not in text
        assert "self.weight" in text
    assert str(tmp_path) not in issue
    assert issue.startswith("# a parameter that is written becomes a result\n")
    assert f"PyTorch version: {torch.__version__}" in issue
    log = issue.partition("### Error logs")[2]
    assert "unflatten" in log
    assert "# Cause: " in script  # more lines of header than when it ran
    code = issue.partition("```python\n")[2].partition("\n```")[0].splitlines()
    told = re.findall(r'  File "repro.py", line (\d+), in .*\n(.*)\n', log)
    assert [code[int(line) - 1].strip() for line, _ in told] == [
        row.strip() for _, row in told
    ]
    assert told
    assert reduction.left_of_model == ""
    with pytest.raises(Finished):
        api.resume(out)
