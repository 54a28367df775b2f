"""The lines of ``--json``: a run for other programs."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TextIO

from shrinkfx.cli.streams import silence
from shrinkfx.errors import UsageError
from shrinkfx.events import (
    Begun,
    Caught,
    Checked,
    Ended,
    Event,
    Failed,
    Seen,
    Spanned,
    Stepped,
    Tried,
)

SCHEMA = 1
"""Of the lines of ``--json``; fields are added without another number."""

NAMES: dict[type[Event], str] = {
    Begun: "start",
    Seen: "baseline",
    Spanned: "baseline",
    Checked: "check",
    Tried: "check",
    Stepped: "step",
    Failed: "step",
    Caught: "by-catch",
    Ended: "end",
}
"""What ``--json`` calls an event; others are for people only."""


class Json:
    """One JSON object per line, for other programs.

    Where the reader leaves, or the disk is full, in the middle of a run, that goes on.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = time.monotonic()

    def __call__(self, event: Event) -> None:
        name = NAMES.get(type(event))
        if name is None:
            return
        elapsed = round(time.monotonic() - self._began, 3)
        data = {"event": name, "schema": SCHEMA, "elapsed": elapsed, **asdict(event)}
        try:
            print(json.dumps(data), file=self._stream, flush=True)
        except BrokenPipeError:
            silence(self._stream)
        except OSError as error:
            silence(self._stream)
            lost = f"--json: cannot write to stdout: {error.strerror}"
            if isinstance(event, Begun):
                raise UsageError(f"{lost}. The run was not started") from error
            print(f"{lost}; the run continues without events", file=sys.stderr)
