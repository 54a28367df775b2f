"""What AOTInductor's loader has unpacked goes with the check, however that ended."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch  # noqa: F401 - the scripts import it

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import Limits, Meter
from shrinkfx.check.script import ScriptRunner

SCRIPT = """
import os
import torch

class Doubles(torch.nn.Module):
    def forward(self, x):
        return x * 2

args = (torch.rand(8),)
with torch.no_grad():
    program = torch.export.export(Doubles(), args)
    package = torch._inductor.aoti_compile_and_package(program)
    loaded = torch._inductor.aoti_load_package(package)
loaded(*args)
mapped = [line.split()[-1] for line in open("/proc/self/maps") if ".wrapper.so" in line]
with open(NOTE, "w") as note:
    note.write(mapped[0])
os.abort()
"""


@pytest.mark.aoti
@pytest.mark.every_run
def test_script_that_aborts_leaves_no_package_unpacked(tmp_path: Path) -> None:
    script, note = tmp_path / "repro.py", tmp_path / "note"
    script.write_text(SCRIPT.replace("NOTE", repr(str(note))))
    with Server(environment=None) as bare:
        runner = ScriptRunner(bare, Limits(300.0, 8 << 30), Meter())
        unpacked = []
        for fresh in (True, False):
            seen = runner.run([script], fresh=fresh)
            assert "SIGABRT" in str(seen)
            library = Path(note.read_text())
            # Below FOLDER/NAME/data/aotinductor/model.
            unpacked.append(library.parents[4])
            note.unlink()
        assert not unpacked[0].exists()  # the second may be on its way
    assert not unpacked[1].exists()
