"""From what was said on the command line to what a run is asked for."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

from shrinkfx.cli.parser import make_parser
from shrinkfx.errors import UsageError
from shrinkfx.options import Options, Sweeping

_BESIDE_RESUME = (
    "model",
    "resume",
    "max_checks",
    "max_minutes",
    "max_disk",
    "json",
    "verbose",
    "quiet",
    "no_progress",
)


_NEVER_EMPTY = ("resume", "candidate", "inputs", "out", "device", "preload")


def refuse_empty(arguments: argparse.Namespace) -> None:
    """See that nothing was named by an empty text, as by ``--resume "$UNSET"``.

    Raises:
        UsageError: something was; taken for left out, it would start another task.
    """
    if arguments.model == "":
        raise UsageError("the path of the program is empty: is a variable not set?")
    for name in _NEVER_EMPTY:
        value = getattr(arguments, name)
        if value == "" or (isinstance(value, list) and "" in value):
            raise UsageError(f"--{name} is given nothing: is a variable not set?")


def refuse_beside_resume(arguments: argparse.Namespace) -> None:
    """See that a run that goes on is asked for nothing else than before.

    Raises:
        UsageError: it is.
    """
    usual = vars(make_parser().parse_args([]))
    for name, value in vars(arguments).items():
        if name not in _BESIDE_RESUME and value != usual[name]:
            option = name.replace("_", "-")
            raise UsageError(
                f"--resume goes on as the run was told: leave --{option} out"
            )


def options_of(arguments: argparse.Namespace, command: str) -> Options:
    return Options(
        model=Path(arguments.model),
        until=arguments.until,
        match=arguments.match,
        check=arguments.check,
        baseline_runs=arguments.baseline_runs,
        inputs=Path(arguments.inputs) if arguments.inputs else None,
        preload=tuple(arguments.preload),
        device=arguments.device,
        backend=arguments.backend,
        arch=arguments.arch,
        probe=arguments.probe,
        all_probes=arguments.all_probes,
        inductor=dict(map(_setting, arguments.inductor_config)),
        environment=dict(_variable("--env", text) for text in arguments.env),
        build=arguments.build,
        guard_pages=arguments.guard_pages,
        timeout_s=arguments.timeout,
        rtol=arguments.rtol,
        atol=arguments.atol,
        strict=arguments.strict,
        max_checks=arguments.max_checks,
        max_minutes=arguments.max_minutes,
        max_disk=arguments.max_disk,
        out=Path(arguments.out) if arguments.out else None,
        strategies=_names(arguments.strategies),
        command=command,
        sweeping=_sweeping(arguments),
    )


def _sweeping(arguments: argparse.Namespace) -> Sweeping | None:
    """Gather what is said of a sweep.

    Raises:
        UsageError: something is, and none is asked for.
    """
    names = ("examples", "seed", "max_elements", "beyond_ranges")
    given = [n for n in names if getattr(arguments, n) not in (None, False)]
    if not arguments.dynamic_sweep:
        if given:
            option = given[0].replace("_", "-")
            raise UsageError(f"--{option} is for a sweep: add --dynamic-sweep")
        return None
    return Sweeping(
        examples=arguments.examples,
        seed=arguments.seed,
        max_elements=arguments.max_elements,
        ranges="beyond" if arguments.beyond_ranges else "declared",
    )


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(filter(None, text.split(",")))


def _setting(text: str) -> tuple[str, object]:
    """Read ``max_autotune=True``; what is no Python literal is a string."""
    name, value = _variable("--inductor-config", text)
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _variable(option: str, text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"{option} takes KEY=VALUE, not '{text}'")
    return name, value
