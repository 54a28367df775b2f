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

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.tensor_specs import Saved, Seeded, TensorSpec
from shrinkfx.protocol.answers import (
    Answer,
    Description,
    Done,
    Fitted,
    Listed,
    Printed,
    Ready,
    Typed,
)
from shrinkfx.protocol.requests import (
    Describe,
    FitRewrites,
    ListCandidate,
    Request,
    RunCommand,
    RunScript,
    SaveCandidate,
    Setup,
    WriteCandidate,
)
from shrinkfx.report.repro import SAVED
from shrinkfx.testing import feed, listing, operator, skeleton
from shrinkfx.worker.forkserver.serve import open_connection, serve
from shrinkfx.worker.forkserver.supervise import Note, Work
from shrinkfx.worker.forkserver.zygote import fork_zygote
from support.fake_fitter import FakeFitter

Arguments = Mapping[str, Any]

OPERATORS = [f"n{number}" for number in range(30)]
NEEDED = ["n7", "n12", "n23"]

JUDGE = f"""
import json, sys
text = open(sys.argv[1], "rb").read()
if text.startswith(b"PK"):
    sys.exit(0)
told = json.loads(text)
given = told["listing"]["given"] if told.get("listing") else []
shapes = [each["recipes"]["example"]["shape"] for each in given]
large = all(shape[0] > 2 for shape in shapes)
sys.exit(not (large and {{*told["keep"]}} >= {{*{NEEDED!r}}}))
"""
"""Source of a command that fails for what has all that is needed, and is large."""

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


def write_down(task: ListCandidate) -> Answer:
    """Write down a listing of two statements, whichever operators there are."""
    Path(task.data).write_bytes(b"values")
    lines = "t = torch.ops.aten.tanh.default(x)", "r = torch.ops.aten.relu.default(t)"
    x = TensorSpec((12, 6), "float32", Saved("example_x"))
    program = listing("\n".join([*lines, "return r"]), x=x)
    drawn = Rewrite((Refill("x", Seeded("randn")),))
    return Listed(program, drawn, task.data)


def fit(task: FitRewrites) -> Answer:
    candidate = Candidate.from_json(skeleton(_NODES), task.candidate)
    fitter = FakeFitter()
    types = fitter.types(candidate).items()
    known = (
        Typed(block, name, told.dtype, told.shape, told.stride, told.device)
        for (block, name), told in types
    )
    return Fitted(tuple(fitter.fit(candidate, task.rewrites)), tuple(known))


def answer(request: Request, home: Path) -> Answer:
    match request.task:
        case ListCandidate() as task:
            return write_down(task)
        case FitRewrites() as task:
            return fit(task)
    return TASKS[type(request.task)](asdict(request.task), home)


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
    setup, line, stem = fork_zygote(setup, open_connection(directory / "server.log"))
    directory = Path(setup.directory)
    line.write(Ready(versions={"torch": "none"}, zygote=stem))

    def work(request: Request) -> Work:
        def do(note: Note, folder: Path) -> Answer:
            note("run" if isinstance(request.task, RunCommand) else "eager")
            said = answer(request, directory)
            note("done")
            return said

        return do

    serve(line, work, directory)


if __name__ == "__main__":
    main()
