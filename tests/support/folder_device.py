"""A device that is a folder, for warm children; no torch, no GPU.

Each context there is a file by the number of its process; ``free`` says how much of 100
bytes is free. Run as a program, with the folder, it is a server with such children.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.protocol.answers import Answer, Ready, Unresolved
from shrinkfx.protocol.requests import CheckOriginal, Request, Setup
from shrinkfx.worker.forkserver.serve import open_connection, serve
from shrinkfx.worker.forkserver.supervise import Note, Work

COLD, WARM = "cold", "warm"


@dataclass
class FolderDevice:
    """A device whose contexts, and what becomes of them, can be seen."""

    folder: Path

    def settings_of(self, request: Request) -> Hashable | None:
        asked = isinstance(request.task, CheckOriginal)
        return (request.options.guard_pages,) if asked else None

    def enter(self, request: Request) -> tuple[int, int]:
        if (self.folder / "no-driver").exists():
            raise RuntimeError("no CUDA-capable device is detected")
        (self.folder / f"context-{os.getpid()}").touch()
        return int((self.folder / "free").read_text()), 100

    def is_well(self) -> bool:
        return not (self.folder / "broken").exists()

    def contexts(self) -> set[int]:
        return {int(path.name.split("-")[1]) for path in self.folder.glob("context-*")}

    def work(self, request: Request) -> Work:
        """Answer whether this process had a context before it was asked."""

        def answer(note: Note, folder: Path) -> Answer:
            note("done")
            if request.options.sought == "die":
                os.abort()
            return Unresolved(WARM if os.getpid() in self.contexts() else COLD)

        return answer


def main() -> None:
    device = FolderDevice(Path(sys.argv[1]))
    with os.fdopen(0, "rb", buffering=0, closefd=False) as stdin:
        setup = Setup.from_line(stdin.readline())
    directory = Path(setup.directory)
    line = open_connection(directory / "server.log")
    line.write(Ready())
    serve(line, device.work, directory, device=device)


if __name__ == "__main__":
    main()
