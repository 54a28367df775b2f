"""A worker without torch: it saves candidates as JSON, for a command to judge.

It serves as ``shrinkfx.worker`` does, and starts in a tenth of the time.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shrinkfx.protocol.answers import Answer, Description, Done, Printed, Ready
from shrinkfx.protocol.requests import Request, Setup
from shrinkfx.protocol.tasks import (
    Describe,
    RunCommand,
    RunScript,
    SaveCandidate,
    WriteCandidate,
)
from shrinkfx.report.running import SAVED
from shrinkfx.testing import feed, operator, skeleton
from shrinkfx.worker.forkserver.serve import serve, take_line
from shrinkfx.worker.forkserver.stem import split
from shrinkfx.worker.forkserver.supervise import Note, Work

Arguments = Mapping[str, Any]

OPERATORS = [f"n{number}" for number in range(30)]
NEEDED = ["n7", "n12", "n23"]

JUDGE = f"""
import json, sys
text = open(sys.argv[1], "rb").read()
whole = text.startswith(b"PK")
sys.exit(not (whole or {{*json.loads(text)["keep"]}} >= {{*{NEEDED!r}}}))
"""
"""Source of a command that fails for what has all that is needed."""

_NODES = {
    "x": feed(),
    "y": feed(),
    **{
        name: operator(f"{OPERATORS[i - 1]} {OPERATORS[i // 2]}" if i else "x y")
        for i, name in enumerate(OPERATORS)
    },
}


def describe(arguments: Arguments, home: Path) -> Answer:
    path = home / "skeleton.json"
    path.write_text(json.dumps(skeleton(_NODES).to_json()))
    return Description(
        skeleton=str(path),
        eager_error="",
        stopped="",
        mismatches=(),
        mismatched=(),
        custom=(),
        inputs=2,
        dynamic_dims=0,
        keeps_state=False,
    )


def save(arguments: Arguments, home: Path) -> Answer:
    Path(arguments["path"]).write_text(json.dumps(arguments["candidate"]))
    Path(arguments["inputs"]).touch()
    return Done()


def write(arguments: Arguments, home: Path) -> Answer:
    Path(arguments["path"]).write_text(json.dumps(arguments["candidate"]))
    Path(arguments["data"]).touch()
    return Printed(
        source=None,
        unprintable="there is no torch",
        two_sets=False,
        passes=False,
        limits=(),
        operators=len(arguments["candidate"]["keep"]),
        nodes=9,
        inputs=2,
        dynamic_dims=0,
        random=False,
        mutates=False,
        targets=(),
    )


def run_script(arguments: Arguments, home: Path) -> Answer:
    (Path(arguments["cwd"]) / SAVED).write_text(json.dumps({"keep": NEEDED}))
    return Done()


def become_command(arguments: Arguments, home: Path) -> Answer:
    os.chdir(arguments["cwd"])
    os.execvp(arguments["words"][0], shlex.split(shlex.join(arguments["words"])))


TASKS = {
    Describe: describe,
    SaveCandidate: save,
    WriteCandidate: write,
    RunScript: run_script,
    RunCommand: become_command,
}


def main() -> None:
    with os.fdopen(0, "rb", buffering=0, closefd=False) as stdin:
        setup = Setup.from_line(stdin.readline())
    directory = Path(setup.directory)
    setup, line, stem = split(setup, take_line(directory / "server.log"))
    directory = Path(setup.directory)
    line.write(Ready(versions={"torch": "none"}, stem=stem))

    def work(request: Request) -> Work:
        def do(note: Note, folder: Path) -> Answer:
            note("run" if isinstance(request.task, RunCommand) else "eager")
            answer = TASKS[type(request.task)](asdict(request.task), directory)
            note("done")
            return answer

        return do

    serve(line, work, directory)


if __name__ == "__main__":
    main()
