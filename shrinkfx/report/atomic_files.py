"""Files that are there as a whole or not at all, whenever the machine stops."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DRAFT = "draft-"
"""How names of files and folders begin that are not whole yet."""


def draft_of(path: Path) -> Path:
    """Name the file that is to become ``path`` once it is whole."""
    return path.with_name(f"{DRAFT}{path.name}")


def publish(path: Path) -> None:
    """Have a draft take the place of ``path``, in one step."""
    draft = draft_of(path)
    with draft.open("rb") as file:
        os.fsync(file.fileno())  # or a power cut might leave the name without content
    draft.replace(path)


def write_json(path: Path, data: Mapping[str, Any], indent: int = 2) -> None:
    draft_of(path).write_text(json.dumps(data, indent=indent) + "\n")
    publish(path)
