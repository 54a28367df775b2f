"""The site that ``make docs`` builds from the documentation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gallery
import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_gallery_is_that_of_repros() -> None:
    assert gallery.PAGE.read_text() == gallery.write() + "\n", "make reference"


@pytest.mark.processes
def test_site_has_no_broken_link(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="pip install -e '.[release]'")
    for path in ROOT.iterdir():
        if path.name not in (".venv", "build"):
            (tmp_path / path.name).symlink_to(path)
    make = ["make", "docs", f"BIN={Path(sys.executable).parent}"]
    installed = [f"--old-file=.venv/{name}" for name in ("installed", "release")]
    subprocess.run([*make, *installed], cwd=tmp_path, check=True, timeout=300)
    assert (tmp_path / "build" / "html" / "docs" / "gallery.html").is_file()
