"""What a script that is captured is told before it runs: which names count."""

from __future__ import annotations

import json
from pathlib import Path

from shrinkfx.intake.carried import COMPILERS, SECRETS, VARIABLES
from shrinkfx.program.namespaces import ARITHMETIC, OF_SIZES, PYTORCHS

FILE = "counts.json"
"""The first that lies in the folder of a capture."""


def tell(folder: Path) -> None:
    """Write it to the folder of the capture, where the script's processes read it.

    They import nothing of ours: the script's interpreter may be one without.
    """
    known = {
        "variables": (*VARIABLES, *COMPILERS),
        "secrets": SECRETS,
        "namespaces": sorted(PYTORCHS),
        "of_sizes": sorted(OF_SIZES),
        "arithmetic": sorted(ARITHMETIC),
    }
    (folder / FILE).write_text(json.dumps(known))
