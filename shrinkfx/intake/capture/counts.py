"""Write the names that the captured script's processes need."""

from __future__ import annotations

import json
from pathlib import Path

from shrinkfx.intake.carried import COMPILERS, SECRETS, VARIABLES
from shrinkfx.program.namespaces import ARITHMETIC, OF_SIZES, PYTORCHS

FILE = "counts.json"
"""The first file in the folder of a capture."""


def tell(folder: Path) -> None:
    """Write the names to the capture's folder, where the script's processes read them.

    The script's interpreter may not have shrinkfx, so they cannot be imported there.
    """
    known = {
        "variables": (*VARIABLES, *COMPILERS),
        "secrets": SECRETS,
        "namespaces": sorted(PYTORCHS),
        "of_sizes": sorted(OF_SIZES),
        "arithmetic": sorted(ARITHMETIC),
    }
    (folder / FILE).write_text(json.dumps(known))
