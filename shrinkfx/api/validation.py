"""Checks of options, files and the environment before a run starts anything."""

from __future__ import annotations

import os
import resource

from shrinkfx.check.command import Command
from shrinkfx.check.preflight import (
    require_command,
    require_compiler,
    require_inputs,
    require_preloads,
    require_program,
)
from shrinkfx.errors import Flag, MessageText, UsageError
from shrinkfx.failure.signature import Kind
from shrinkfx.options.options import Options, Sweeping
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.flags import require_valid_values
from shrinkfx.protocol.source import is_source_archive
from shrinkfx.search.strategy import choose

_DESCRIPTORS = 64
"""Minimum limit of open files of a process; the linker was observed with 28."""


def require_environment() -> None:
    """Check the current folder and the limit of open files.

    Raises:
        UsageError: the current folder no longer exists, or the limit is too low.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            f"the current folder no longer exists ({error.strerror}): cd to another "
            "folder"
        ) from error
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= allowed < _DESCRIPTORS:
        raise UsageError(
            f"this process may open {allowed} files at once, but a run needs "
            f"{_DESCRIPTORS}: run ulimit -n {_DESCRIPTORS} or higher"
        )


def require_valid_options(options: Options) -> None:
    """Check the options of a run, each by itself and together.

    Raises:
        UsageError: an option is invalid, or two options exclude each other.
        StrategyError: a strategy is unknown or invalid.
    """
    require_valid_values(options)
    if options.check is not None:
        _check_command(Command.parse(options.check), options)
    if options.probe is not None and options.all_probes:
        both = Flag("--all-probes"), ", or ", Flag("--probe", options.probe)
        raise UsageError(*both, ": use only one of them")
    if options.explain and options.no_explain:
        both = Flag("--explain"), ", or ", Flag("--no-explain")
        raise UsageError(*both, ": use only one of them")
    if options.until == Kind.HANG and options.timeout_s is None:
        hang = Flag("--until", "hang"), " needs ", Flag("--timeout")
        raise UsageError(*hang, ", which defines how long a hang is")
    if options.gpus:
        _require_valid_gpus(options)
    choose(options.strategies)


def _require_valid_gpus(options: Options) -> None:
    if options.device == "cpu" or options.backend == Backend.INTERPRETER:
        raise UsageError(Flag("--gpus"), " only applies to CUDA devices: omit it")
    if options.device not in (None, "cuda", "cuda:0"):
        both = Flag("--gpus"), ", or ", Flag("--device", options.device)
        reason = ": a check sees only its own GPU, as cuda:0; use "
        raise UsageError(*both, reason, Flag("--device", "cuda"))
    if options.check is not None:
        command = ": a command (", Flag("--check"), ") chooses its own GPU"
        raise UsageError(Flag("--gpus"), *command)


def require_valid_sweep(options: Options) -> None:
    """Check the options of a sweep.

    Raises:
        UsageError: an option is invalid, or does not apply to a sweep.
    """
    if options.check is not None:
        runs = Flag("--dynamic-sweep"), " runs AOTInductor: omit "
        raise UsageError(*runs, Flag("--check"))
    require_valid_values(options.sweeping or Sweeping())


def require_files(options: Options) -> None:
    """Check the program and the other files of a run before a worker is started.

    Raises:
        LoadError: a file is missing or invalid, or there is no C++ compiler.
        UsageError: the program is stored as code that the user has not allowed to run,
            or ``check`` cannot test it.
    """
    require_program(options.model, run_code=options.run_code)
    if options.check is not None and is_source_archive(options.model):
        problem = " needs a .pt2, but torch.export.save rejects this program"
        raise UsageError(Flag("--check"), problem)
    require_other_files(options)


def require_other_files(options: Options) -> None:
    """Check the inputs, the preloads, the C++ compiler and the command of ``check``.

    Raises:
        LoadError: one of them is missing or invalid.
    """
    if options.inputs:
        require_inputs(options.inputs)
    require_preloads(options.preload)
    require_compiler(options.environment)
    if options.check is not None:
        require_command(options.check, options.environment)


def _check_command(command: Command, options: Options) -> None:
    check = Flag("--check")
    if options.until or options.match:
        replaced = Flag("--until"), " and ", Flag("--match")
        raise UsageError(check, " replaces ", *replaced, ": use only one of them")
    if options.strict_kind:
        raise UsageError(Flag("--strict-kind"), *_refuse_for_command(check))
    if options.comparison_settings:
        conflicts = [Flag(f"--{name}") for name in options.comparison_settings]
        _, *flags = (part for flag in conflicts for part in (", ", flag))
        raise UsageError(check, " does its own comparison: omit ", *flags)
    if options.guard_pages == "on":
        raise UsageError(Flag("--guard-pages", "on"), *_refuse_for_command(check))
    if options.sanitizer:
        raise UsageError(Flag("--sanitizer"), *_refuse_for_command(check))
    if command.takes_inputs and not options.inputs:
        file = Flag("--inputs", stands="FILE")
        raise UsageError(check, " with {inputs} needs ", file)


def _refuse_for_command(flag: Flag) -> MessageText:
    return MessageText(" does not apply to a command (", flag, ")")
