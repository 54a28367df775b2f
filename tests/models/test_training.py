"""Training scripts with a wrong lowering that only backward graphs need."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from shrinkfx import api
from shrinkfx.events import ignore_event
from shrinkfx.options.options import Options

pytestmark = pytest.mark.aoti

SCRIPTS = Path(__file__).with_name("training")


@pytest.mark.parametrize(
    ("script", "operator"),
    [
        ("gpt2", "aten._unsafe_masked_index_put_accumulate.default"),
        ("resnet", "aten.le.Scalar"),
        ("diffusion", "aten.avg_pool2d_backward.default"),
    ],
)
def test_wrong_backward_graph_of_training_script_is_reduced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, operator: str
) -> None:
    if script == "gpt2":
        pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    command = [sys.executable, "-W", "ignore", str(SCRIPTS / f"{script}.py")]
    options = Options(Path(script), out=tmp_path / "out", no_explain=True)
    with api.capture(options, command, ignore_event) as captured:
        reduction = api.reduce(captured)
    assert reduction.exit_code == 0
    assert reduction.verified == (3, 3)
    assert str(reduction.signature.kind) == "mismatch"
    before, after = reduction.operators
    assert before > 100
    assert after <= 3
    text = reduction.repro.read_text()
    assert f"torch.ops.{operator}" in text
    assert "torch.compile(model" in text
