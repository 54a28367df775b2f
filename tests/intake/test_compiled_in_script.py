"""Operators that a captured script compiles: its own call is what the run preloads."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrinkfx.intake.preload_choice import choose_preloads
from shrinkfx.protocol.captured import CapturedProgram, Origin

SCRIPT = """\
import sys
from torch.utils import cpp_extension
from torch.utils.cpp_extension import load_inline

SOURCE = "TORCH_LIBRARY(mine, m) {}"
%s
print("serving", sys.argv)
"""


@pytest.mark.parametrize(
    "call",
    [
        'load_inline("mine", SOURCE, is_python_module=False)',
        'OPS = cpp_extension.load_inline(name="mine", cpp_sources=SOURCE)',
    ],
)
def test_cpp_extension_call_of_script_is_copied_to_preload(
    tmp_path: Path, call: str
) -> None:
    file, folder = tmp_path / "serve.py", tmp_path / "capture"
    folder.mkdir()
    file.write_text(SCRIPT % call)
    origin = Origin("__main__", str(file), "", True, "operators in C++", called=False)
    program = CapturedProgram(origins=(origin,))
    (name,) = choose_preloads(program, folder, tmp_path).names
    text = Path(name).read_text()
    assert call in text
    assert "SOURCE = " in text
    assert "serving" not in text
