"""A strategy of someone else's, installed from a folder: found and used."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from shrinkfx.cli.main import main
from shrinkfx.program.candidate import Candidate
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import (
    DEFAULT_ORDER,
    ORDER_FOR_LISTINGS,
    Strategy,
    available,
    choose,
)
from shrinkfx.testing import FakeOracle, candidates, chain, check_strategy, whole

FOLDER = Path(__file__).with_name("third_party")
GUIDE = Path(__file__).resolve().parents[1] / "docs" / "strategies.md"


@pytest.fixture(name="installed", scope="module")
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package where nothing but its own test will find it."""
    folder = tmp_path_factory.mktemp("third_party")
    source = shutil.copytree(FOLDER, folder / "source")  # a build leaves files there
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-index"),
            *("--no-deps", "--no-build-isolation", "--disable-pip-version-check"),
            *("--target", str(folder / "installed"), str(source)),
        ],
        check=True,
        timeout=600,
    )
    return folder / "installed"


def test_installed_strategy_is_listed_after_the_built_in_strategies(
    installed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "drop_doubles" not in available()
    monkeypatch.syspath_prepend(installed)
    assert [*available()] == [*DEFAULT_ORDER, *ORDER_FOR_LISTINGS, "drop_doubles"]
    assert main(["--list-strategies"]) == 0
    assert "drop_doubles         Propose to bypass" in capsys.readouterr().out


def test_installed_strategy_is_used(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(installed)
    program = chain("x", "relu", "relu_1", "relu_2", "tanh", "tanh_1")
    oracle = FakeOracle(lambda candidate: True)
    reducer = Reducer(whole(program), Asker(oracle), choose(["drop_doubles"]))
    assert reducer.run().keep == {"relu", "tanh"}
    named = [strategy.name for strategy in choose(None)]
    assert named[-1] == "drop_doubles"


@pytest.mark.parametrize("arguments", [["--list-strategies"], [__file__, "--verify"]])
def test_strategy_with_a_failing_import_is_reported_with_its_package(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    about = tmp_path / "broken-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken\nVersion: 1.2\n"
    )
    points = "[shrinkfx.strategies]\ncut_all = no_such_module:CutAll\n"
    (about / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "strategy 'cut_all' of broken 1.2 cannot be imported" in said
    assert "Traceback" not in said


@given(candidate=candidates())
def test_example_strategy_passes_check_strategy(candidate: Candidate) -> None:
    check_strategy(_example(), candidate)


def test_guide_shows_the_example_package_and_a_passing_test() -> None:
    text = GUIDE.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shown, tested = blocks
    assert shown in (FOLDER / "shrinkfx_doubles" / "__init__.py").read_text()
    (entry,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert entry in (FOLDER / "pyproject.toml").read_text()
    names: dict[str, Any] = {"DropDoubles": type(_example())}
    exec(tested, names)
    names["test_second_relu_goes"]()
    names["test_laws"]()


def _example() -> Strategy:
    sys.path.insert(0, str(FOLDER))
    try:
        from shrinkfx_doubles import DropDoubles
    finally:
        sys.path.remove(str(FOLDER))
    return DropDoubles()
