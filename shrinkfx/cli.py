"""The command line: arguments to one call of the library; the only prints."""

from __future__ import annotations

import argparse
import ast
import shlex
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from shrinkfx import api
from shrinkfx.errors import ShrinkfxError, UsageError
from shrinkfx.failure.signature import ANY, MEANING
from shrinkfx.progress import Plain, Progress, Quiet, Verbose
from shrinkfx.search.strategy import available

EXIT_CODES = {
    0: "reduced and verified",
    1: "internal error",
    2: "bad usage or input",
    3: "the program does not fail as asked; says what it does instead",
    4: "stopped early by budget or Ctrl-C; the best so far is written and verified",
    5: "reduced, but the repro could not be verified",
}
_SHOWN = 3
"""By-catch that is printed; ``summary.json`` has all."""

_STATUS = {"reduced": 0, "stopped": 4, "unverified": 5}

_EXAMPLES = """\
examples:
  shrinkfx model.pt2
      reduce whatever failure the program shows
  shrinkfx model.pt2 --until assert --inputs failing.pt --preload my_ops.py
      reduce an assertion that only these inputs trigger, with custom operators
  shrinkfx model.pt2 --until mismatch --inductor-config max_autotune=True \\
      --max-minutes 30 --out report
      reduce a wrong result under the failing run's own settings, for half an hour
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    options = parser.parse_args(given)
    if options.list_strategies:
        for name, strategy in available().items():
            print(f"{name:20} {(strategy.__doc__ or '').strip().partition(chr(10))[0]}")
        return 0
    if options.model is None:
        parser.error("which program? give the path of a .pt2 (or --help)")
    try:
        return _run(options, "shrinkfx " + shlex.join(_without_folders(given)))
    except ShrinkfxError as error:
        if options.verbose:
            traceback.print_exc()
        print(f"shrinkfx: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("shrinkfx: interrupted before a repro was verified", file=sys.stderr)
        return 4


def _run(arguments: argparse.Namespace, command: str) -> int:
    options = _options(arguments, command)
    listener = _listener(arguments)
    try:
        if arguments.candidate:
            retrieved = api.retrieve(options, arguments.candidate, listener)
            return _print_candidate(retrieved)
        reduction = api.reduce(options, listener)
    finally:
        listener.close()
    _print_result(reduction)
    return _STATUS[reduction.status]


def _options(arguments: argparse.Namespace, command: str) -> api.Options:
    names = arguments.strategies
    return api.Options(
        model=Path(arguments.model),
        until=arguments.until,
        match=arguments.match,
        check=arguments.check,
        baseline_runs=arguments.baseline_runs,
        inputs=Path(arguments.inputs) if arguments.inputs else None,
        preload=tuple(arguments.preload),
        device=arguments.device,
        inductor=dict(map(_setting, arguments.inductor_config)),
        environment=dict(map(_variable, arguments.env)),
        timeout_s=arguments.timeout,
        max_checks=arguments.max_checks,
        max_minutes=arguments.max_minutes,
        out=Path(arguments.out) if arguments.out else None,
        strategies=tuple(names.split(",")) if names else None,
        command=command,
    )


def _print_candidate(retrieved: api.Retrieved) -> int:
    print(f"candidate: {retrieved.operators} operators: {retrieved.seen}")
    print(f"program:   {retrieved.program}")
    verified = retrieved.verified
    if verified is None:
        return 3
    print(f"repro:     {verified.written.files[0]}")
    print(f"verified:  {verified.failed} of {verified.runs} runs fail in the same way")
    return 0 if verified.failed == verified.runs else 5


def _print_result(reduction: api.Reduction) -> None:
    runs, failed = reduction.verified
    before, after = reduction.operators
    minimal = "1-minimal" if reduction.minimal else "not shown to be minimal"
    print(f"{reduction.status}: {before} -> {after} operators, {minimal}")
    print(f"failure:  {reduction.signature}")
    print(f"verified: {failed} of {runs} runs of the repro fail in the same way")
    print(f"spent:    {reduction.checks} checks, {reduction.seconds:.0f} s")
    for caught in reduction.summary["by_catch"][:_SHOWN]:
        print(
            f"by-catch: {caught['kind']} in {caught['stage']}: {caught['text']:.80} "
            f"({caught['operators']} operators, --candidate {caught['candidate']})"
        )
    print(f"repro:    {reduction.repro}")


def _listener(options: argparse.Namespace) -> Quiet:
    if options.quiet:
        return Quiet()
    if options.verbose:
        return Verbose(sys.stderr)
    if options.no_progress or not sys.stderr.isatty():
        return Plain(sys.stderr)
    return Progress(sys.stderr)


def _setting(text: str) -> tuple[str, object]:
    """Read ``max_autotune=True``; what is no Python literal is a string."""
    name, value = _variable(text)
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"expected KEY=VALUE, not '{text}'")
    return name, value


def _without_folders(arguments: Sequence[str]) -> list[str]:
    """Keep file names only: a repro may not name a path of this machine."""
    kept = []
    for argument in arguments:
        option, separator, value = argument.rpartition("=")
        kept.append(option + separator + Path(value).name if "/" in value else argument)
    return kept


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shrinkfx",
        allow_abbrev=False,
        usage="shrinkfx MODEL.pt2 [options]",
        description="Reduce an exported program that fails under AOTInductor to the "
        "smallest program that fails in the same way, as one repro.py.",
        epilog=_EXAMPLES + "\n" + _tables(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"shrinkfx {metadata.version('shrinkfx')}" if _installed() else "shrinkfx"
    parser.add_argument("model", nargs="?", metavar="MODEL.pt2", help="the program")
    parser.add_argument("--version", action="version", version=version)
    _add_failure_options(parser)
    _add_program_options(parser)
    _add_search_options(parser)
    _add_output_options(parser)
    return parser


def _add_failure_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which failure")
    group.add_argument(
        "--until",
        metavar="KIND",
        help="the kind of failure (below); default: what the baseline shows",
    )
    group.add_argument(
        "--match",
        default="",
        metavar="REGEX",
        help="only a failure whose text holds this",
    )
    group.add_argument(
        "--check",
        metavar="CMD",
        help="a command of yours instead: run with {} replaced by the path of a .pt2, "
        "it exits with 0 if that still fails, with 125 if it cannot tell",
    )
    group.add_argument(
        "--baseline-runs",
        type=int,
        default=100,
        metavar="N",
        help="runs of the original before it is said not to fail (default 100)",
    )
    group.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        help="seconds per check; default: ten times the original, 1 to 10 minutes",
    )


def _add_program_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the failing program")
    group.add_argument(
        "--inputs",
        metavar="FILE",
        help="failing inputs, where they differ from those in the .pt2: a torch.saved "
        "tuple, or a dict with args and kwargs",
    )
    group.add_argument(
        "--preload",
        action="append",
        default=[],
        metavar="MODULE|FILE",
        help="module, .py or .so that registers custom operators; may be repeated",
    )
    group.add_argument(
        "--device", metavar="cpu|cuda[:N]", help="move the program there"
    )
    group.add_argument(
        "--inductor-config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an Inductor option of the failing run; may be repeated",
    )
    group.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an environment variable of the failing run; may be repeated",
    )


def _add_search_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the search")
    group.add_argument(
        "--max-checks", type=int, metavar="N", help="stop after N checks"
    )
    group.add_argument(
        "--max-minutes",
        type=float,
        metavar="M",
        help="search no longer than M minutes after the start",
    )
    group.add_argument("--strategies", metavar="NAME,...", help="only these, in order")
    group.add_argument(
        "--list-strategies", action="store_true", help="list the strategies and leave"
    )


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out", metavar="DIR", help="default: shrinkfx-out/<model>-<number>"
    )
    group.add_argument(
        "--candidate",
        metavar="DIGEST",
        help="write a candidate that the run in --out DIR has met, its by-catch say",
    )
    loudness = group.add_mutually_exclusive_group()
    loudness.add_argument(
        "-v", "--verbose", action="store_true", help="a line per check"
    )
    loudness.add_argument("-q", "--quiet", action="store_true", help="only the result")
    group.add_argument(
        "--no-progress", action="store_true", help="plain lines instead of a bar"
    )


def _tables() -> str:
    kinds = {
        **{kind.value: text for kind, text in MEANING.items()},
        ANY: "the first seen",
    }
    lines = ["kinds of failure:"]
    lines += [f"  {kind:14} {text}" for kind, text in kinds.items()]
    lines += ["", "exit codes:"]
    lines += [f"  {code}  {text}" for code, text in EXIT_CODES.items()]
    return "\n".join(lines)


def _installed() -> bool:
    try:
        metadata.version("shrinkfx")
    except metadata.PackageNotFoundError:
        return False
    return True
