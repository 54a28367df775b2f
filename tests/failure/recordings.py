"""Read recordings, those too that were made when answers had no types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shrinkfx.protocol.answers import Answer, Checked, Difference, Ending, Raised


def read_ending(data: Mapping[str, Any]) -> Ending:
    """Read what ``record.py`` writes, or has written before."""
    if "built" in data:  # as all fields are on the wire
        return Ending.from_json(data)
    return Ending(**{**data, "answer": _answer(data["answer"])})


def _answer(told: Mapping[str, Any]) -> Answer | None:
    if error := told.get("error"):
        return Raised(error["type"], error["message"], tuple(error["frames"]))
    if difference := told.get("difference"):
        return Checked(Difference(**difference), (), told["values_skipped"])
    assert not told
    return None
