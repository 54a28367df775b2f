"""Atomic file writes: a reader finds a complete file or none, even after a crash."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DRAFT = "draft-"
"""Name prefix of files and folders that are not complete yet."""


def draft_of(path: Path) -> Path:
    """Return the path of the draft that ``publish`` renames to ``path``."""
    return path.with_name(f"{DRAFT}{path.name}")


def publish_draft(path: Path) -> None:
    """Rename the draft of ``path`` to ``path`` in one step."""
    draft = draft_of(path)
    with draft.open("rb") as file:
        os.fsync(file.fileno())  # a power failure could otherwise leave an empty file
    draft.replace(path)


def write_json(path: Path, data: Mapping[str, Any], indent: int = 2) -> None:
    """Write JSON to ``path`` atomically."""
    draft_of(path).write_text(json.dumps(data, indent=indent) + "\n")
    publish_draft(path)
