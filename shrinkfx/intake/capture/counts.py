"""Write the names that the captured script's processes need."""

from __future__ import annotations

import json
from pathlib import Path

from shrinkfx.intake.carried import COMPILERS, SECRETS, VARIABLES
from shrinkfx.program.skeleton import ARITHMETIC, PYTORCH_NAMESPACES, SIZE_FUNCTIONS

FILE = "counts.json"
"""The first file in the folder of a capture."""


def write_counts(folder: Path) -> None:
    """Write the names to the capture's folder, where the script's processes read them.

    The script's interpreter may not have shrinkfx, so they cannot be imported there.
    """
    names = {
        "variables": (*VARIABLES, *COMPILERS),
        "secrets": SECRETS,
        "namespaces": sorted(PYTORCH_NAMESPACES),
        "of_sizes": sorted(SIZE_FUNCTIONS),
        "arithmetic": sorted(ARITHMETIC),
    }
    (folder / FILE).write_text(json.dumps(names))
