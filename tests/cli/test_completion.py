"""The scripts of ``--print-completion``, in the shell that they are for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shrinkfx.cli.main import main
from shrinkfx.cli.parser import list_options
from shrinkfx.failure.signature import UNTIL


def printed(capsys: pytest.CaptureFixture[str], shell: str) -> str:
    pytest.importorskip("shtab")
    assert main(["--print-completion", shell]) == 0
    return capsys.readouterr().out


_ASKS = """
source {script}
complete -p shrinkfx >/dev/null || exit 9
function=$(complete -p shrinkfx | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
COMP_WORDS=({words}) COMP_CWORD={last} COMP_LINE="{words}"
"$function" shrinkfx "${{COMP_WORDS[$COMP_CWORD]}}" "${{COMP_WORDS[$COMP_CWORD - 1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(script: str, folder: Path, *words: str) -> list[str]:
    """Have bash complete the last word, as it does at a tab."""
    (folder / "completion.bash").write_text(script)
    typed = " ".join(word or "''" for word in ("shrinkfx", *words))
    asks = _ASKS.format(script="completion.bash", words=typed, last=len(words))
    done = subprocess.run(
        ["bash", "--norc", "-c", asks],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_options_values_and_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = printed(capsys, "bash")
    for name in ("model.pt2", "inputs.pt"):
        (tmp_path / name).touch()
    (tmp_path / "report").mkdir()
    assert completed(script, tmp_path, "--unt") == ["--until"]
    assert completed(script, tmp_path, "model.pt2", "--max-m") == ["--max-minutes"]
    assert completed(script, tmp_path, "--until", "") == sorted(UNTIL)
    assert completed(script, tmp_path, "--until", "comp") == ["compile-error"]
    assert completed(script, tmp_path, "--device", "cu") == ["cuda"]
    assert completed(script, tmp_path, "--resume", "") == ["report"]
    assert "inputs.pt" in completed(script, tmp_path, "--inputs", "in")
    assert "model.pt2" in completed(script, tmp_path, "mod")
    every = completed(script, tmp_path, "--")
    long = {
        flag for each in list_options() for flag in each.flags if flag.startswith("--")
    }
    assert long <= set(every)


def test_zsh_completion_has_each_option(capsys: pytest.CaptureFixture[str]) -> None:
    script = printed(capsys, "zsh")
    assert script.startswith("#compdef shrinkfx")
    assert [each.flag for each in list_options() if each.flag not in script] == []


def test_completion_without_shtab_recommends_the_extra(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["--print-completion", "bash"]) == 2
    assert "pip install 'shrinkfx[completion]'" in capsys.readouterr().err
