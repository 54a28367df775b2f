"""What is advised where something cannot be imported."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from shrinkfx.worker.loading.import_advice import advice_on


def failed(statement: str) -> ImportError:
    with pytest.raises(ImportError) as caught:
        exec(compile(statement, "<string>", "exec"), {})
    return caught.value


def test_advice_names_the_python_that_lacks_a_module() -> None:
    """It need not be the one that is typed as python: of pipx it is not."""
    said = advice_on(failed("import no_such_module_here"))
    assert said.startswith(f"{sys.executable} has no module no_such_module_here: ")
    assert "python -m shrinkfx" in said


def test_advice_names_a_file_that_shadows_a_standard_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "colorsys.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    importlib.invalidate_caches()
    said = advice_on(failed("from colorsys import rgb_to_hsv"))
    monkeypatch.delitem(sys.modules, "colorsys")
    assert said.startswith(f"{tmp_path / 'colorsys.py'} shadows another module of ")
    assert "another folder" in said


def test_user_module_is_not_reported_as_shadowing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_things.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    said = advice_on(failed("from my_own_things import gone"))
    assert "do not match" in said
    assert advice_on(ValueError("no import")) == ""
