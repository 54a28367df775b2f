"""Choose the settings and variables of a failing run that the reduction copies.

All kinds of input use these lists and no others. The capture of a script passes them to
the script's processes (``intake/capture/counts.py``).
"""

from __future__ import annotations

import re

from shrinkfx.check.client.environment import TUNING

VARIABLES = (*TUNING, "CUDA", "ATEN_")
"""Prefixes of environment variables that change what PyTorch does."""

COMPILERS = ("CXX",)
"""Prefixes of variables that choose the C++ compiler and its flags."""

SECRETS = ("TOKEN", "KEY", "SECRET", "PASS")
"""Words in the names of variables that must not be recorded."""

_ONLY_LOG = re.compile(
    r"TORCH_(TRACE|LOGS|COMPILE_DEBUG)(_\w+)?|TORCH_SHOW_CPP_STACKTRACES"
    r"|TORCHDYNAMO_(REPRO|EXTENDED_DEBUG)_\w+|TORCHDYNAMO_VERBOSE"
    r"|\w+_CACHE(_DIR)?|DUMP_AOTI_MINIFIER|AOT_INDUCTOR_REPRO_LEVEL"
)
"""Variables that only change what is logged or cached, or where."""

_OF_PROCESSES = re.compile(
    r"TORCHELASTIC_\w+|TORCH_NCCL_\w+|TORCHINDUCTOR_COMPILE_THREADS"
)
"""Variables that launchers set for their processes, or that a check sets itself."""

_LOGGING = ("trace.", "aot_inductor.dump_aoti_minifier", "aot_inductor.repro_level")
"""Settings that change only what is logged or dumped.

With the minifier's settings, a check would load and run the program while compiling it.
"""

_OF_EACH_RUN = (
    "aot_inductor.metadata",
    "aot_inductor.package",
    "aot_inductor.output_path",
    "aot_inductor.serialized_in_spec",
    "aot_inductor.serialized_out_spec",
)
"""Settings that each compilation of a package sets itself."""

_PROGRAMS = re.compile(
    r"(^|[._])(cxx|gdb|compiler|path|cmd|command)(_|$|\.)|_path$|_command$"
)
"""Settings that name programs to run, or the paths of programs."""


def is_variable(name: str, value: str) -> bool:
    """Return whether a variable tunes PyTorch.

    Secrets, variables with paths, and variables that only affect logging or processes
    do not count.
    """
    tunes = name.startswith(VARIABLES) and not any(word in name for word in SECRETS)
    excluded = _ONLY_LOG.fullmatch(name) or _OF_PROCESSES.fullmatch(name)
    return tunes and "/" not in value and not excluded


def is_user_variable(name: str, value: str) -> bool:
    """Return whether a variable of the user's script tunes PyTorch or the compiler."""
    return name.startswith(COMPILERS) or is_variable(name, value)


def is_setting(name: str) -> bool:
    """Return whether a setting of Inductor affects more than logs and files."""
    return not name.startswith(_LOGGING) and name not in _OF_EACH_RUN


def names_programs(name: str) -> bool:
    """Return whether a setting names a program to run; it is not copied from a dump."""
    return _PROGRAMS.search(name) is not None
