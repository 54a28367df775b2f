"""Select the environment variables that may change a failure."""

from __future__ import annotations

import os
from collections.abc import Mapping

from shrinkfx.check.client.environment import select_tuning_variables
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
"""Variables that change only what is printed, not what is compiled or run."""

_SHOWN = frozenset(name for names in ONLY_SHOWN.values() for name in names)


def inherited_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables that may have changed the failure."""
    variables = select_tuning_variables(environment)
    return {name: variables[name] for name in variables if name not in _SHOWN}


def variables_to_test(
    preset: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> list[str]:
    """Return the environment variables without which a repro may still fail.

    The hash seed is not among them, because one run tells nothing about other seeds.

    Args:
        preset: variables that the user has set with ``--env``. They are set for the
            input program, so the repro may not need them.
    """
    return sorted({*inherited_variables(environment), *preset} - {HASH_SEED})
