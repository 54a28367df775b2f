"""Captures that came to no run: what a folder has of one."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.intake.capture.door import END, script_of
from shrinkfx.intake.capture.records import ScriptEnd
from shrinkfx.report.output import CAPTURE


@dataclass(frozen=True)
class Left:
    """What a script has left whose programs nobody has reduced.

    Attributes:
        folder: that of the run that did not begin.
        script: its name, ``serve.py``; '' where that was not noted.
        programs: how many were captured.
        at: when the last of it was written, in seconds since 1970.
        has_ended: the script has, and that is noted.
        does_not_fail: it is the program of a dump, whose run found no failure.
    """

    folder: Path
    script: str
    programs: int
    at: float
    has_ended: bool
    does_not_fail: bool = False


def left_in(folder: Path) -> Left | None:
    """Find a capture in the folder of a run; None where there is none."""
    place = folder / CAPTURE
    programs = len([*place.glob("program-*.json")])
    if not programs:
        return None
    script, end = "", place / END
    has_ended = os.path.isfile(end)
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        ended = ScriptEnd.from_json(json.loads(end.read_text()))
        script = script_of(ended.command).name
    return Left(folder, script, programs, place.stat().st_mtime, has_ended)
