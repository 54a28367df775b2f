"""Which variables of whoever made a repro are its reader's business."""

from __future__ import annotations

import os
from collections.abc import Mapping

from shrinkfx.check.client.environment import tuning
from shrinkfx.protocol.requests import HASH_SEED

ONLY_SHOWN = {
    "what PyTorch logs": (
        "TORCH_LOGS",
        "TORCH_LOGS_FORMAT",
        "TORCH_CPP_LOG_LEVEL",
        "TORCHDYNAMO_VERBOSE",
    ),
    "how an error is shown": (
        "TORCH_SHOW_CPP_STACKTRACES",
        "TORCH_SHOW_CPP_STACKTRACES_WITH_LINENO",
        "TORCH_SYMBOLIZE_MODE",
        "TORCH_DISABLE_ADDR2LINE",
    ),
    "what other libraries print": (
        "TRITON_PRINT_AUTOTUNING",
        "MKL_VERBOSE",
        "OMP_DISPLAY_AFFINITY",
        "OMP_DISPLAY_ENV",
        "KMP_SETTINGS",
        "KMP_VERSION",
        "KMP_WARNINGS",
    ),
}
"""Variables by which nothing is compiled or run otherwise, and what they are for."""

_SHOWN = frozenset(name for names in ONLY_SHOWN.values() for name in names)


def inherited(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Pick what a shell may have changed the failure by."""
    found = tuning(environment)
    return {name: found[name] for name in found if name not in _SHOWN}


def to_ask_about(
    given: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """List the variables without which a repro may fail alike.

    A hash seed is none of them: one run tells nothing of other seeds.

    Args:
        given: what the user has set with ``--env``: on purpose, but for the whole
            program.
    """
    return sorted({*inherited(environment), *given} - {HASH_SEED})
