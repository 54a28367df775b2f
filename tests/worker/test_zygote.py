"""A stem with torch in it: a stranger's server, whatever its own server has loaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from support.exported import Call

from shrinkfx.check.client.server import Server
from shrinkfx.protocol.requests import Request, RunScript

pytestmark = pytest.mark.processes

THREADS = torch.get_num_threads()
"""Of a new process; tests of others set it here."""

PRELOAD = """
import os
import torch
from torch._inductor.lowering import lowerings

torch.planted = True
os.environ["PLANTED"] = "1"
lowerings[torch.ops.aten.sin.default] = lowerings[torch.ops.aten.cos.default]
"""

SCRIPT = """
import os
import sys
import torch
from torch._inductor.lowering import lowerings

aten = torch.ops.aten
found = {
    "planted": hasattr(torch, "planted") or "PLANTED" in os.environ,
    "lowering": lowerings[aten.sin.default] is lowerings[aten.cos.default],
    "shrinkfx": "shrinkfx" in sys.modules,
    "threads": torch.get_num_threads(),
    "cache": os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""),
    "sum": torch.arange(1 << 20).sum().item(),
}
raise ValueError(found)
"""


def test_zygote_has_no_state_of_preloads_or_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ:
        if name.startswith(("PYTHON", "TORCH", "OMP_", "MKL_")):
            monkeypatch.delenv(name)
    model, preload = tmp_path / "model.pt2", tmp_path / "planting.py"
    torch.export.save(
        torch.export.export(Call(lambda x: torch.sin(x)), (torch.ones(3),)), model
    )
    preload.write_text(PRELOAD)
    script = tmp_path / "repro.py"
    script.write_text(SCRIPT)
    with (
        Server(
            model=model, preloads=[str(preload)], cwd=tmp_path, leaves_zygote=True
        ) as main,
        Server(environment=None, zygote_of=main) as grown,
    ):
        assert grown.pid == main.ready.zygote
        assert grown.ready.versions == main.ready.versions
        assert grown.ready.cpu_seconds < main.ready.cpu_seconds / 3
        log = grown.ask(Request(RunScript(str(script), str(tmp_path)))).log
    for part in ("'planted': False", "'lowering': False", "'shrinkfx': False"):
        assert part in log
    assert f"'threads': {THREADS}" in log
    assert str(main.directory) not in log
