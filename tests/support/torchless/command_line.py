"""The command line, with a worker that needs no torch in the place of the real one.

``command_line.py FOLDER`` writes a program there, a command that judges it, and what
starts the worker; with further arguments it is the command line.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent


def fill(folder: Path) -> None:
    from support.torchless.worker import JUDGE

    with zipfile.ZipFile(folder / "model.pt2", "w") as archive:
        archive.writestr("model/models/model.json", "{}")
    (folder / "judge.py").write_text(JUDGE)
    starter = folder / "python"
    found = f'PYTHONPATH="{HERE.parents[1]}" '
    start = f'exec "{sys.executable}" "{HERE / "worker.py"}"'
    starter.write_text(f"#!/bin/sh\n{found}{start}\n")
    starter.chmod(0o755)


if __name__ == "__main__":
    home, arguments = Path(sys.argv[1]), sys.argv[2:]
    sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1])]
    if arguments:
        # Whatever module it is told to run, it is a worker. Set before shrinkfx looks.
        sys.executable = str(home / "python")
        from shrinkfx.cli.main import main

        sys.exit(main(arguments))
    fill(home)
