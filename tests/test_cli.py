"""The command line's answers to what it is given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shrinkfx.arguments import EXIT_CODES
from shrinkfx.cli import main
from shrinkfx.failure.signature import MEANING

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()


@pytest.fixture(name="model")
def _model(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt2"
    path.write_bytes(b"not a program")
    return path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the tool; argparse leaves by SystemExit, the rest returns."""
    try:
        code = main(arguments)
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--until", "ism"], "no kind 'ism'"),
        (["--until", "hang"], "--timeout"),
        (["--env", "NOVALUE"], "KEY=VALUE"),
        (["--inductor-config", "=1"], "KEY=VALUE"),
        (["--device", "gpu"], "--device gpu"),
        (["--match", "(unclosed"], "--match"),
        (["--check", "./fails.sh"], "no {} where"),
        (["--check", "x {}", "--until", "crash"], "not both"),
        (["--check", "x {} {inputs}"], "needs --inputs"),
        (["--check", "x {}", "--guard-pages", "on"], "--guard-pages on"),
        (["--guard-pages", "maybe"], "--guard-pages"),
        (["--build", "faster"], "--build"),
        (["--candidate", "1a2b"], "needs --out"),
        (["--candidate", "1a2b", "--out", "nowhere"], "holds no run"),
        (["--max-checks", "0"], "--max-checks must be above 0"),
        (["--max-minutes", "-1"], "--max-minutes must be above 0"),
        (["--max-checks", "many"], "--max-checks"),
        (["--strategies", "drop_node"], "did you mean drop_nodes"),
        (["--unti", "assert"], "unrecognized arguments"),
        (["-v", "-q"], "not allowed with"),
        (["--examples", "5"], "add --dynamic-sweep"),
        (["--beyond-ranges"], "--beyond-ranges is for a sweep"),
        (["--resume", "nowhere"], "--resume nowhere holds no run"),
        (["--resume", "nowhere", "--seed", "1"], "leave --seed out"),
        (["--resume", "nowhere", "--max-checks", "0"], "--max-checks must be above 0"),
        (["--dynamic-sweep", "--examples", "0"], "--examples must be above 0"),
        (["--dynamic-sweep", "--max-elements", "0"], "--max-elements must be above"),
        (["--dynamic-sweep", "--check", "x {}"], "leave --check out"),
        (["--inputs", "own.py"], "is for --dynamic-sweep"),
    ],
)
def test_bad_usage_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], model: Path, arguments: list[str], words: str
) -> None:
    code, said = answer(capsys, str(model), *arguments)
    assert code == 2
    assert words in said
    assert "Traceback" not in said


def test_missing_model_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = answer(capsys)
    assert code == 2
    assert "which program?" in said


def test_model_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = answer(capsys, "nowhere.pt2")
    assert code == 2
    assert "nowhere.pt2: no such file" in said


def test_folder_of_another_run_is_not_written_to(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path
) -> None:
    (tmp_path / "summary.json").write_text("{}")
    code, said = answer(capsys, str(model), "--out", str(tmp_path))
    assert code == 2
    assert "holds another run" in said
    assert (tmp_path / "summary.json").read_text() == "{}"


def test_folder_that_cannot_be_made_is_named(
    capsys: pytest.CaptureFixture[str], model: Path
) -> None:
    code, said = answer(capsys, str(model), "--out", f"{model}/out")
    assert code == 2
    assert f"--out {model}/out" in said


def test_file_that_is_no_program_is_told_and_leaves_no_folder(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path
) -> None:
    code, said = answer(capsys, str(model), "--out", str(tmp_path / "out"))
    assert code == 2
    assert "cannot be loaded" in said
    assert "torch.export.save" in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_preload_that_raises_is_told(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken_operators.py"
    broken.write_text("raise RuntimeError('no licence')")
    out = str(tmp_path / "out")
    code, said = answer(capsys, str(model), "--preload", str(broken), "--out", out)
    assert code == 2
    assert "no licence" in said


def test_readme_has_the_exit_codes_of_the_tool() -> None:
    rows = re.findall(r"^\| (\d) \| (.+) \|$", README, re.MULTILINE)
    assert {int(code): text for code, text in rows} == EXIT_CODES


def test_readme_has_the_kinds_of_the_tool() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", README, re.MULTILINE))
    assert {k: rows[k].replace("`", "") for k in MEANING} == {
        k.value: v for k, v in MEANING.items()
    }


def test_help_shows_five_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert shown.count("\n  shrinkfx ") == 5
    assert "exit codes:" in shown
