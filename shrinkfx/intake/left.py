"""Find what the folder of a run without a journal contains."""

from __future__ import annotations

import json
from pathlib import Path

from shrinkfx.intake.capture.left import UnreducedCapture, find_unreduced_capture
from shrinkfx.intake.found import DOES_NOT_FAIL
from shrinkfx.system.output_folder import INTAKE


def find_unreduced(folder: Path) -> UnreducedCapture | None:
    """Return a capture, or a program that does not fail; None if there is neither."""
    return find_unreduced_capture(folder) or _no_failure(folder)


def _no_failure(folder: Path) -> UnreducedCapture | None:
    note = folder / INTAKE / DOES_NOT_FAIL
    try:
        program, at = json.loads(note.read_text())["program"], note.stat().st_mtime
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return UnreducedCapture(
        folder, str(program), 1, at, has_ended=True, does_not_fail=True
    )
