"""What is refused before anything is started: options and files that cannot work."""

from __future__ import annotations

import math
import os
import re
import resource
from collections.abc import Sequence
from difflib import get_close_matches

from shrinkfx.check.command import Command
from shrinkfx.check.preflight import (
    require_command,
    require_compiler,
    require_inputs,
    require_preloads,
    require_program,
)
from shrinkfx.errors import UsageError
from shrinkfx.failure.signature import UNTIL, Kind
from shrinkfx.options import GUARD_PAGES, RANGES, Options, Sweeping
from shrinkfx.protocol.choices import ARCHS, Backend, Build, Probe
from shrinkfx.search.strategy import choose

_DESCRIPTORS = 64
"""Files that a process of a run may have open at once: the linker was seen with 28."""


def require_surroundings() -> None:
    """Refuse to start where no process could do its work.

    Raises:
        UsageError: the current folder is gone, or too few files may be open at once.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            f"the current folder is gone ({error.strerror}): cd to one that is there"
        ) from error
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= allowed < _DESCRIPTORS:
        raise UsageError(
            f"{allowed} files may be open at once here, and a run needs "
            f"{_DESCRIPTORS}: ulimit -n {_DESCRIPTORS}, or more"
        )


def require_sense(options: Options) -> None:
    """Refuse options that no run can do anything with.

    Raises:
        UsageError: which, and what there is.
    """
    if options.until is not None and options.until not in UNTIL:
        near = get_close_matches(options.until, UNTIL, n=3)
        meant = f"did you mean {', '.join(near)}? all: " if near else "one of "
        raise UsageError(f"no kind '{options.until}': {meant}{', '.join(UNTIL)}")
    try:
        re.compile(options.match)
    except re.error as error:
        raise UsageError(f"--match {options.match!r}: {error}") from error
    if options.guard_pages not in GUARD_PAGES:
        words = ", ".join(GUARD_PAGES)
        raise UsageError(f"no --guard-pages '{options.guard_pages}': one of {words}")
    if options.check is not None:
        _check_command(Command.parse(options.check), options)
    _check_device(options.device)
    _check_one_of("backend", options.backend, tuple(Backend))
    _check_one_of("arch", options.arch, ARCHS)
    _check_one_of("build", options.build, tuple(Build))
    if options.probe is not None:
        _check_one_of("probe", options.probe, tuple(Probe))
        if options.all_probes:
            raise UsageError(f"--all-probes, or --probe {options.probe}: not both")
    if options.until == Kind.HANG and options.timeout_s is None:
        raise UsageError("--until hang needs --timeout: how long is a hang?")
    for name in ("rtol", "atol"):
        value = getattr(options, name)
        if value is not None and not 0 <= value < math.inf:
            raise UsageError(f"--{name} must be a number from 0 on, not {value}")
    require_budget(options)
    if options.strategies == ():
        raise UsageError("--strategies names none; all: shrinkfx --list-strategies")
    choose(options.strategies)


def require_sense_of_sweep(options: Options) -> None:
    """Refuse options that no sweep can do anything with.

    Raises:
        UsageError: which, and what there is.
    """
    how = options.sweeping or Sweeping()
    if options.check is not None:
        raise UsageError("--dynamic-sweep runs AOTInductor: leave --check out")
    _check_one_of("ranges", how.ranges, RANGES)
    for name in ("examples", "max_elements"):
        _check_positive(name, getattr(how, name))


def require_budget(options: Options) -> None:
    """Refuse limits that nothing could keep to.

    Raises:
        UsageError: which.
    """
    for name in ("timeout_s", "max_checks", "max_minutes", "max_disk", "baseline_runs"):
        _check_positive(name.removesuffix("_s"), getattr(options, name))


def require_files(options: Options) -> None:
    """Refuse what no worker could load, before one is started.

    Raises:
        LoadError: which is missing or wrong, a C++ compiler included.
    """
    require_program(options.model)
    if options.inputs:
        require_inputs(options.inputs)
    require_preloads(options.preload)
    require_compiler(options.environment)
    if options.check is not None:
        require_command(options.check, options.environment)


def _check_positive(name: str, value: float | None) -> None:
    if value is None:
        return
    option = f"--{name.replace('_', '-')}"
    if not value > 0:  # nan is not
        raise UsageError(f"{option} must be above 0, not {value}")
    if math.isinf(value):
        raise UsageError(f"{option} must be a number, not {value}: leave it out")


def _check_one_of(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise UsageError(f"--{option} {value}: one of {', '.join(known)}")


def _check_device(device: str | None) -> None:
    if device is None or device in ("cpu", "cuda", "cuda:0"):
        return
    if found := re.fullmatch(r"cuda:(\d+)", device):
        # AOTInductor loads what it has compiled onto the first.
        advice = f"set CUDA_VISIBLE_DEVICES={found[1]}, and say --device cuda"
        raise UsageError(
            f"--device {device}: a package runs on the first GPU: {advice}"
        )
    raise UsageError(f"--device {device}: cpu or cuda")


def _check_command(command: Command, options: Options) -> None:
    if options.until or options.match:
        raise UsageError("--check takes the place of --until and --match: not both")
    if options.closeness:
        named = ", ".join(f"--{name}" for name in options.closeness)
        raise UsageError(f"--check compares as it likes: leave {named} out")
    if options.guard_pages == "on":
        raise UsageError("--guard-pages on: not for a command of yours (--check)")
    if command.takes_inputs and not options.inputs:
        raise UsageError("--check with {inputs} needs --inputs FILE")
