"""Load file after file as workers do, each in a fork of one process.

    python load_each.py FOLDER < jobs

A job is a line of JSON: a ``Setup``, or with ``unguarded`` how torch itself would
read the file. For each a line with the worker's answer, its exit status.
"""

from __future__ import annotations

import gc
import io
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

from shrinkfx.protocol.requests import Setup

LIMIT_S = 60.0


def main(folder: Path) -> None:
    import torch

    torch.set_num_threads(1)
    from shrinkfx.worker import tasks  # noqa: F401 - what a start imports
    from shrinkfx.worker.aoti import backend as aoti

    aoti.warm_up()
    _read_one()
    gc.freeze()  # or each fork looks through all of it
    for number, line in enumerate(sys.stdin):
        print(json.dumps(_load(json.loads(line), folder / str(number))), flush=True)


def _read_one() -> None:
    """Import what the first program read imports, which each fork would do again."""
    import torch

    saved = io.BytesIO()
    sizes = {"input": {0: torch.export.Dim("n", max=8)}}
    model, inputs = torch.nn.Linear(2, 2), (torch.ones(3, 2),)
    program = torch.export.export(model, inputs, dynamic_shapes=sizes)
    torch.export.save(program, saved)
    torch.export.load(saved)


def _load(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    folder.mkdir()
    asked_read, asked_write = os.pipe()
    said_read, said_write = os.pipe()
    deadline = time.monotonic() + LIMIT_S
    child = os.fork()
    if not child:
        os.setsid()
        os.dup2(asked_read, 0)
        os.dup2(said_write, 1)
        os.dup2(os.open(f"{folder}.stderr", os.O_CREAT | os.O_WRONLY), 2)
        os.closerange(3, 64)
        _be_worker(job)
        os._exit(0)
    os.close(asked_read)
    os.close(said_write)
    if "unguarded" not in job:
        os.write(asked_write, Setup(str(folder), **job).to_line().encode())
    answer = _first_line(said_read, deadline)
    os.close(asked_write)  # a worker that is served no more ends by itself
    status = _end_of(child, deadline)
    os.close(said_read)
    return {"answer": answer, "status": status}


def _be_worker(job: dict[str, Any]) -> None:
    if "unguarded" in job:
        import torch

        path = job["unguarded"]
        if path.endswith(".pt2"):
            torch.export.load(path).run_decompositions({})
        else:
            torch.load(path, weights_only=False)
        return
    from shrinkfx.worker.__main__ import main as work

    work()


def _first_line(descriptor: int, deadline: float) -> str | None:
    data = b""
    while b"\n" not in data:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return None
        got = os.read(descriptor, 1 << 16)
        if not got:
            return None
        data += got
    return data.decode().partition("\n")[0]


def _end_of(child: int, deadline: float) -> int | None:
    """Wait for a child; None if it had to be killed."""
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
