"""What scripts that compile the same text at once share, and what not."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from shrinkfx.worker.aoti.backend import own_cache_variables


def test_scripts_share_the_inductor_cache_except_per_program_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "shared"))
    shared, of_a_text = Path(default_cache_dir()), "c" * 52
    for name in ("ab", "triton", "locks", of_a_text):
        (shared / name).mkdir(parents=True)
    for script in (tmp_path / "one", tmp_path / "two"):
        script.mkdir()
        variables = own_cache_variables(script)
        own = Path(variables["TORCHINDUCTOR_CACHE_DIR"])
        assert variables["TMPDIR"] == str(own.parent) == str(script)
        linked = {path.name: path.resolve() for path in own.iterdir()}
        assert linked.keys() == {"ab", "triton", "precompiled_headers", "locks"}
        assert {path.parent for path in linked.values()} == {shared}
        (own / of_a_text / "made").mkdir(parents=True)
    assert not list((shared / of_a_text).iterdir())
