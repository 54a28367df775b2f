"""Find captures whose programs have not been reduced."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.intake.capture.records import ScriptEnd
from shrinkfx.intake.capture.script_capture import END, find_script
from shrinkfx.system.output_folder import CAPTURE


@dataclass(frozen=True)
class UnreducedCapture:
    """A capture whose programs have not been reduced.

    Attributes:
        folder: the folder of the run that did not begin.
        script: the script's name, ``serve.py``; '' if it was not recorded.
        programs: the number of captured programs.
        at: the last modification, in seconds since 1970.
        has_ended: whether the end of the script was recorded.
        does_not_fail: it is the program of a dump, and its run found no failure.
    """

    folder: Path
    script: str
    programs: int
    at: float
    has_ended: bool
    does_not_fail: bool = False


def find_unreduced_capture(folder: Path) -> UnreducedCapture | None:
    """Return the capture in the folder of a run, or None."""
    place = folder / CAPTURE
    programs = len([*place.glob("program-*.json")])
    if not programs:
        return None
    script, end = "", place / END
    has_ended = os.path.isfile(end)
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        ended = ScriptEnd.from_json(json.loads(end.read_text()))
        script = find_script(ended.command).name
    return UnreducedCapture(folder, script, programs, place.stat().st_mtime, has_ended)
