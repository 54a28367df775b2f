"""``shrinkfx verify --torch``: a repro on several versions of PyTorch."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from support.wheels import (
    COMPILERS,
    VERSIONS,
    on_path,
    use_index,
    write_others,
    write_torch,
)

from shrinkfx.check.environments import folders
from shrinkfx.cli.main import main
from shrinkfx.run.verify import InterpreterResult, by_version

SCRIPT = """\
# assert in AOTInductor (run): reduced from 9 operators to 1.
#
# Failure: assert | run | index out of bounds
# Seen on: torch 2.14.0+cpu, Python 3.11.7
# Needs:   ninja and a C++ compiler,
#          for operators in C++
import torch

def compiled():
    if torch.__version__.startswith("2.7."):
        import ninja_of_nobody
    if not torch.__version__.startswith("2.6."):
        raise RuntimeError("index out of bounds: 0 <= tmp3 < 7L")

actual = compiled()
print("no longer fails")
"""


class Answering(io.StringIO):
    """A terminal at which a user types an answer."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(name="repro")
def _repro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a repro, and an index of packages named torch that have only a version."""
    index = tmp_path / "index"
    index.mkdir()
    write_torch(index, "2.7.0", "2.8.0", *VERSIONS)
    write_others(index)
    use_index(monkeypatch, index)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "repro.py"
    path.write_text(SCRIPT)
    return path


def verify(*words: object) -> int:
    return main(["verify", *map(str, words), "--no-progress"])


def cannot_install(
    monkeypatch: pytest.MonkeyPatch, refused: str, error: BaseException
) -> None:
    """Have pip raise an error when it installs one version."""
    install = folders.Pip.install

    def raise_once(
        pip: folders.Pip, version: str, folder: Path, temporary: Path
    ) -> None:
        if version == refused:
            raise error
        install(pip, version, folder, temporary)

    monkeypatch.setattr(folders.Pip, "install", raise_once)


@pytest.mark.torch
@pytest.mark.processes
def test_result_is_an_ordered_table_with_a_sentence(
    repro: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(repro, "--torch", "2.8.0,2.7.0,2.6.0", "--yes") == 0
    said = capsys.readouterr()
    assert "needs to install torch 2.6.0, 2.7.0, 2.8.0 with " in said.err
    rows = said.out.partition("across versions:\n")[2].splitlines()
    own = [row for row in rows if row.endswith(": fails (this interpreter)")]
    assert len(own) == 1
    assert [row for row in rows if row not in own] == [
        "  torch 2.6.0: passes",
        "  torch 2.7.0: cannot tell: exception in run: ModuleNotFoundError: No module "
        "named 'ninja_of_nobody'",
        "  torch 2.8.0: fails: assert in run: index out of bounds: 0 <= tmp3 < 7L",
        "first tested version that fails: 2.8.0; last that passes: 2.6.0; cannot tell "
        "on 2.7.0",
        "not installed for these versions: ninja and a C++ compiler, for operators in "
        "C++",
    ]


@pytest.mark.torch
@pytest.mark.processes
def test_bisection_installs_few_versions_and_skips_those_without_a_verdict(
    repro: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(repro, "--torch", "bisect", "--yes", "--json") == 0
    events = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    result = events[-1]["result"]
    assert "; last that passes: 2.6.0; cannot tell on 2.7.0" in result["versions"]
    verdicts = {run["torch"]: run["fails"] for run in result["across"]}
    assert (verdicts["2.6.0"], verdicts["2.7.0"]) == (False, None)
    assert len(verdicts) < len(VERSIONS)
    made = {path.name.split("-")[1] for path in folders.home().iterdir()}
    assert made == verdicts.keys()


@pytest.mark.torch
@pytest.mark.processes
def test_ctrl_c_keeps_the_results_of_tested_versions(
    repro: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cannot_install(monkeypatch, "2.8.0", KeyboardInterrupt())
    on_path(monkeypatch, repro.parent / "bin", COMPILERS)
    assert verify(repro, "--torch", "2.6.0,2.8.0", "--yes") == 4
    said = capsys.readouterr().out
    assert "  torch 2.6.0: passes\n" in said
    assert "torch 2.8.0" not in said
    assert said.endswith(
        "interrupted: not all versions were tested. Run the same command again; it "
        "reuses the environments.\n"
    )


@pytest.mark.processes
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("n\n", "shrinkfx: nothing was installed\n"),
        ("", "shrinkfx: nothing was installed\n"),
        (None, "\nto install, add --yes\n"),
    ],
)
def test_nothing_is_installed_unless_the_user_agrees(
    repro: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str | None,
    said: str,
) -> None:
    stdin = io.StringIO() if answer is None else Answering(answer)
    monkeypatch.setattr("sys.stdin", stdin)
    assert verify(repro, "--torch", "2.6.0") == 2
    told = capsys.readouterr().err
    assert told.endswith(said)
    assert "to install torch 2.6.0 with " in told
    assert ("install? [y/N]" in told) is (answer is not None)
    assert not folders.home().exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--torch", "2.6.0"],
            ("the path of the repro is missing: shrinkfx verify repro.py"),
        ),
        (["{}", "--torch", "new"], "--torch new: give versions separated by commas"),
        (["{}", "--torch", ""], "--torch has an empty value"),
        (["{}", "--yes"], "--yes needs --torch: add --torch"),
        (["{}x", "--torch", "2.6.0"], "no such file"),
    ],
)
def test_contradictory_options_are_refused_at_once(
    repro: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    given = [word.replace("{}", str(repro)) for word in words]
    try:
        code = verify(*given)
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err


def test_verdicts_are_by_release_or_by_build_if_a_release_has_several() -> None:
    runs = [
        InterpreterResult("/c", "2.14.0+cpu", "", False),
        InterpreterResult("/b", "2.13.0+cu130", "", True),
        InterpreterResult("/a", "2.13.0+cpu", "", False),
        InterpreterResult("/none", "", "does not import torch", None),
    ]
    table = by_version(runs)
    assert table.verdicts == {
        "2.13.0+cu130": True,
        "2.13.0+cpu": False,
        "2.14.0": False,
    }
    assert [run.python for run in table.runs] == ["/b", "/a", "/c", "/none"]
