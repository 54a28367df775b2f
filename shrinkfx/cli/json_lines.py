"""The JSON lines that ``--json`` prints, one for each event."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TextIO

from shrinkfx.cli.streams import redirect_to_devnull
from shrinkfx.errors import UsageError
from shrinkfx.events import (
    BaselineFound,
    Event,
    OtherFailureFound,
    QueryAnswered,
    RunEnded,
    RunStarted,
    SizesFound,
    SizesTried,
    StepTaken,
    SweepFailureFound,
)

SCHEMA = 1
"""Version of the lines; a new field does not change it."""

EVENT_NAMES: dict[type[Event], str] = {
    RunStarted: "start",
    BaselineFound: "baseline",
    SizesFound: "baseline",
    QueryAnswered: "check",
    SizesTried: "check",
    StepTaken: "step",
    SweepFailureFound: "step",
    OtherFailureFound: "other-failure",
    RunEnded: "end",
}
"""Names of events in ``--json``; it leaves out all other events."""

OLD_EVENTS = {"other-failure": "by-catch"}
"""Events that are printed under their old name too, until 0.2."""

OLD_KEYS = {
    "candidate_operators": "asked",
    "bytes_of_inputs": "given",
    "details": "said",
}
"""Keys that are also printed under their old names, until 0.2."""


class Json:
    """A listener that prints one JSON object per line.

    If a line cannot be written, for example because the reader has closed the pipe or
    the disk is full, the run continues without further lines. Only a failure to write
    the first event stops the run, unless the pipe was closed.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = time.monotonic()

    def __call__(self, event: Event) -> None:
        name = EVENT_NAMES.get(type(event))
        if name is None:
            return
        elapsed = round(time.monotonic() - self._began, 3)
        data = {"event": "", "schema": SCHEMA, "elapsed": elapsed, **asdict(event)}
        data |= {old: data[new] for new, old in OLD_KEYS.items() if new in data}
        names = [name, OLD_EVENTS[name]] if name in OLD_EVENTS else [name]
        try:
            for each in names:
                line = json.dumps(data | {"event": each})
                print(line, file=self._stream, flush=True)
        except BrokenPipeError:
            redirect_to_devnull(self._stream)
        except OSError as error:
            redirect_to_devnull(self._stream)
            problem = f"--json: cannot write to stdout: {error.strerror}"
            if isinstance(event, RunStarted):
                raise UsageError(f"{problem}. The run was not started") from error
            print(f"{problem}; the run continues without events", file=sys.stderr)
