"""Which settings and variables of a failing run a run of ours is to have, by any door.

All that a door finds is held against these lists, and against no others: a script that
is captured is told by them what to write down (``intake/capture/counts.py``).
"""

from __future__ import annotations

import re

from shrinkfx.check.client.environment import TUNING

VARIABLES = (*TUNING, "CUDA", "ATEN_")
"""How variables begin by which PyTorch does something else."""

COMPILERS = ("CXX",)
"""How those begin that say which compiler is run, and how."""

SECRETS = ("TOKEN", "KEY", "SECRET", "PASS")
"""What is in the names of variables that nobody may write down."""

_ONLY_TELL = re.compile(
    r"TORCH_(TRACE|LOGS|COMPILE_DEBUG)(_\w+)?|TORCH_SHOW_CPP_STACKTRACES"
    r"|TORCHDYNAMO_(REPRO|EXTENDED_DEBUG)_\w+|TORCHDYNAMO_VERBOSE"
    r"|\w+_CACHE(_DIR)?|DUMP_AOTI_MINIFIER|AOT_INDUCTOR_REPRO_LEVEL"
)
"""Variables that change what is written down, or where."""

_OF_PROCESSES = re.compile(
    r"TORCHELASTIC_\w+|TORCH_NCCL_\w+|TORCHINDUCTOR_COMPILE_THREADS"
)
"""What launchers tell processes of each other, and what a check sets itself."""

_TELLING = ("trace.", "aot_inductor.dump_aoti_minifier", "aot_inductor.repro_level")
"""Settings that change what is written down, and no program. With the minifier's, a
check would load and run the program while it compiles it."""

_OF_EACH_RUN = (
    "aot_inductor.metadata",
    "aot_inductor.package",
    "aot_inductor.output_path",
    "aot_inductor.serialized_in_spec",
    "aot_inductor.serialized_out_spec",
)
"""What each compilation of a package sets by itself."""

_PROGRAMS = re.compile(
    r"(^|[._])(cxx|gdb|compiler|path|cmd|command)(_|$|\.)|_path$|_command$"
)
"""Settings that name programs to be run, or where these are."""


def is_variable(name: str, value: str) -> bool:
    """Take what tunes PyTorch: not what says where code is found, or which is run."""
    tunes = name.startswith(VARIABLES) and not any(word in name for word in SECRETS)
    others = _ONLY_TELL.fullmatch(name) or _OF_PROCESSES.fullmatch(name)
    return tunes and "/" not in value and not others


def is_variable_of_mine(name: str, value: str) -> bool:
    """Take the compiler as well, which a user's own script has chosen."""
    return name.startswith(COMPILERS) or is_variable(name, value)


def is_setting(name: str) -> bool:
    """Take a setting of Inductor: not where files go, or what is told."""
    return not name.startswith(_TELLING) and name not in _OF_EACH_RUN


def names_programs(name: str) -> bool:
    """Tell whether a setting names a program to be run: nothing to take of others."""
    return _PROGRAMS.search(name) is not None
