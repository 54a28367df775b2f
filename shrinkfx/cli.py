"""The command line: arguments to one call of the library; the only prints."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import traceback
from collections.abc import Sequence

from shrinkfx import api
from shrinkfx.arguments import make_parser, options_of, refuse_beside_resume
from shrinkfx.errors import ShrinkfxError
from shrinkfx.progress import Plain, Progress, Quiet, Verbose
from shrinkfx.search.strategy import available

_SHOWN = 3
"""By-catch that is printed; ``summary.json`` has all."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = make_parser()
    options = parser.parse_args(given)
    if options.list_strategies:
        for name, strategy in available().items():
            print(f"{name:20} {(strategy.__doc__ or '').strip().partition(chr(10))[0]}")
        return 0
    if options.model is None and options.resume is None:
        parser.error("which program? give the path of a .pt2 (or --help)")
    try:
        return _run(options, "shrinkfx " + shlex.join(_without_folders(given)))
    except ShrinkfxError as error:
        if options.verbose:
            traceback.print_exc()
        _print_error(str(error), error)
        return error.exit_code
    except KeyboardInterrupt as error:
        _print_error("interrupted before a repro was verified", error)
        return 4


def _print_error(said: str, error: BaseException) -> None:
    print(f"shrinkfx: {said}", file=sys.stderr)
    for note in getattr(error, "__notes__", ()):  # how to go on, for one
        print(note, file=sys.stderr)


def _run(arguments: argparse.Namespace, command: str) -> int:
    if arguments.resume:
        return _resume(arguments)
    options = options_of(arguments, command)
    listener = _listener(arguments)
    try:
        if arguments.verify:
            return _print_confirmed(api.verify(options, listener))
        if arguments.candidate:
            retrieved = api.retrieve(options, arguments.candidate, listener)
            return _print_candidate(retrieved)
        if options.sweeping:
            return _print_swept(api.sweep(options, listener))
        reduction = api.reduce(options, listener)
    finally:
        listener.close()
    return _print_result(reduction)


def _resume(arguments: argparse.Namespace) -> int:
    refuse_beside_resume(arguments)
    listener = _listener(arguments)
    try:
        came = api.resume(
            arguments.resume,
            model=arguments.model,
            max_checks=arguments.max_checks,
            max_minutes=arguments.max_minutes,
            listener=listener,
        )
    finally:
        listener.close()
    if isinstance(came, api.Swept):
        return _print_swept(came)
    return _print_result(came)


def _print_candidate(retrieved: api.Retrieved) -> int:
    print(f"candidate: {retrieved.operators} operators: {retrieved.seen}")
    print(f"program:   {retrieved.program}")
    verified = retrieved.verified
    if verified is None:
        return 3
    print(f"repro:     {verified.written.files[0]}")
    print(f"verified:  {verified.failed} of {verified.runs} runs fail in the same way")
    return 0 if verified.failed == verified.runs else 5


def _print_confirmed(confirmed: api.Confirmed) -> int:
    if confirmed.expected:
        print(f"expected: {confirmed.expected}")
    print(f"seen:     {confirmed.seen}")
    said = " as its header states" if confirmed.expected else ""
    print(f"it {'fails' if confirmed.fails else 'does not fail'}{said}")
    return 0 if confirmed.fails else 3


def _print_swept(swept: api.Swept) -> int:
    counts = swept.report["examples"]["inside"]
    print(
        f"{counts['run']} sizes run: {counts['passes']} pass, {counts['fails']} fail, "
        f"{counts['invalid']} are invalid, {counts['unresolved']} gave no answer"
    )
    print(swept.table or "no size was found at which the program fails")
    if swept.target:
        print(f"to reduce it: --inputs {swept.target.failing}")
    print(f"folder:   {swept.folder}")
    return swept.exit_code


def _print_result(reduction: api.Reduction) -> int:
    runs, failed = reduction.verified
    before, after = reduction.operators
    minimal = "1-minimal" if reduction.minimal else "not shown to be minimal"
    print(f"{reduction.status}: {before} -> {after} operators, {minimal}")
    print(f"failure:  {reduction.seen}")
    rate = reduction.summary["rate"]
    if min(rate.values()) < 1.0:
        print(f"flaky:    {rate['before']:.0%} of runs fail, {rate['after']:.0%} now")
    print(f"verified: {failed} of {runs} runs of the repro fail in the same way")
    print(f"spent:    {reduction.checks} checks, {reduction.seconds:.0f} s")
    for caught in reduction.summary["by_catch"][:_SHOWN]:
        text = caught["text"].partition("\n")[0]
        print(
            f"by-catch: {caught['kind']} in {caught['stage']}: {text:.80} "
            f"({caught['operators']} operators, --candidate {caught['candidate']})"
        )
    print(f"repro:    {reduction.repro}")
    return reduction.exit_code


def _listener(options: argparse.Namespace) -> Quiet:
    if options.quiet:
        return Quiet()
    if options.verbose:
        return Verbose(sys.stderr)
    if options.no_progress or not sys.stderr.isatty():
        return Plain(sys.stderr)
    return Progress(sys.stderr)


def _without_folders(arguments: Sequence[str]) -> list[str]:
    """Keep file names only: a repro may not name a path of this machine."""
    return [re.sub(r"[^\s=]*/", "", argument) for argument in arguments]
