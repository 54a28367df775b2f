"""``shrinkfx triage``: from many failing programs to a list of bugs."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from shrinkfx.campaign import triage
from shrinkfx.campaign.programs import short_name
from shrinkfx.campaign.report import describe_reason, render_lines
from shrinkfx.campaign.runs import Campaign, Result, Status
from shrinkfx.campaign.triage import (
    INTERRUPTED,
    NEW_BUG,
    UNKNOWN,
    Triage,
    resume_command,
)
from shrinkfx.check.limits import usual_jobs
from shrinkfx.cli.parser import make_parser
from shrinkfx.cli.streams import treat_sigterm_as_ctrl_c
from shrinkfx.errors import ShrinkfxError, UsageError
from shrinkfx.options.options import Options
from shrinkfx.protocol.flags import list_record_options

_DESCRIPTION = """\
Reduce many failing programs, and list the bugs that cause them. shrinkfx reduces the
first program of each bug, and recognizes the others by the reduced operators.
"""

_EPILOG = f"""\
shrinkfx passes the options after -- to each run:
  shrinkfx triage failures -- --preload ops.py
Exit codes: 0 if every bug was known before, or no program fails; {NEW_BUG} if a bug is
new; {UNKNOWN} if none is new, but a failing program was not assigned to a bug, or a run
ended with an error; {INTERRUPTED} after Ctrl-C, if programs were left to run.
"""


def main(words: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    words, options = _split(words)
    arguments = make_triage_parser().parse_args(words)
    try:
        with treat_sigterm_as_ctrl_c():
            done = _run(arguments, options)
    except ShrinkfxError as error:
        print(f"shrinkfx triage: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"shrinkfx triage: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("shrinkfx triage: interrupted before the first run", file=sys.stderr)
        return INTERRUPTED
    for line in render_lines(done.campaign, done.bugs, done.folder):
        print(line)
    if done.interrupted:
        print(f"to continue: {resume_command(done.folder)}")
    return done.exit_code


def _split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    if "--" not in words:
        return words, ()
    index = words.index("--")
    return words[:index], words[index + 1 :]


def _run(arguments: argparse.Namespace, options: Sequence[str]) -> Triage:
    jobs = arguments.jobs
    if jobs is None and not arguments.ray:
        jobs = usual_jobs()
    if arguments.resume:
        new = arguments.paths, options, arguments.known, arguments.out, arguments.watch
        if any(new):
            raise UsageError(
                "--resume reuses the programs and options of the triage: pass only "
                "--jobs and --ray with it"
            )
        return triage.resume(
            arguments.resume,
            jobs=jobs,
            ray=arguments.ray,
            listener=_print_result,
            on_start=_print_start,
        )
    if not arguments.paths:
        raise UsageError("the paths of the programs are missing: shrinkfx triage DIR")
    _require_run_options(options)
    return triage.triage(
        arguments.paths,
        options,
        known=arguments.known,
        out=arguments.out,
        jobs=jobs,
        ray=arguments.ray,
        watch=arguments.watch,
        listener=_print_result,
        on_start=_print_start,
    )


_REDUCTION = {option.name for option in list_record_options(Options)} - {"out", "known"}
"""Names of the options of a reduction that a triage passes on."""


def _require_run_options(words: Sequence[str]) -> None:
    """Require that only options of a reduction are given for the runs.

    Raises:
        UsageError: there is a path, or another option.
    """
    parser = make_parser()
    given, usual = vars(parser.parse_args([*words])), vars(parser.parse_args([]))
    others = [n for n in given if given[n] != usual[n] and n not in _REDUCTION]
    if others:
        raise UsageError(
            f"{shlex.join(words)}: only options of a reduction are allowed after --, "
            "except --out and --known"
        )


def _print_start(campaign: Campaign, runs: Path) -> None:
    programs = f"programs to run: {len(campaign.pending)}"
    if campaign.watched:
        programs = f"running the programs that appear in {', '.join(campaign.watched)}"
        programs += ", until Ctrl-C"
    print(
        f"{programs}, {campaign.jobs} at a time; each takes minutes. To see the runs "
        f"at work: shrinkfx --list {runs}",
        file=sys.stderr,
    )


def _print_result(campaign: Campaign, result: Result) -> None:
    over = len(campaign.programs) - len(campaign.pending)
    count = f"[{over}/{len(campaign.programs)}{_time_left(campaign, over)}]"
    name, seconds = short_name(Path(result.program.path)), round(result.seconds)
    ending = f"{result.status}, {seconds} s{describe_reason(result)}"
    runs = [each for each in campaign.results if each.program == result.program]
    is_first = runs.index(result) == 0
    if result.status is Status.KNOWN:
        bugs = ", ".join(Path(folder).name for folder in result.known)
        ending = f"{'has the bug of' if is_first else 'no bug besides'} {bugs}"
        ending += f", {seconds} s"
    again = "" if is_first else " (run again for a second bug)"
    print(f"{count} {name}{again}: {ending}", file=sys.stderr)


def _time_left(campaign: Campaign, over: int) -> str:
    """Estimate the time for the other programs from the first ``over`` programs."""
    if not campaign.pending:
        return ""
    spent_s = sum(each.seconds for each in campaign.results)
    left_s = spent_s / over * len(campaign.pending) / campaign.jobs
    return f", about {math.ceil(left_s / 60)} min left"


def make_triage_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shrinkfx triage",
        usage="shrinkfx triage PATH... [options] [-- options of each run]\n"
        "       shrinkfx triage --resume DIR",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    path = (
        "a .pt2, a folder with .pt2 files, captures or debug dumps, or a list of "
        "programs (.jsonl)"
    )
    add("paths", nargs="*", metavar="PATH", help=path)
    known = "folder that contains folders of earlier runs; may be repeated"
    add("--known", action="append", default=[], metavar="DIR", help=known)
    add("--out", metavar="DIR", help="folder for the results")
    jobs = (
        "number of programs at a time (default: half the cores, at most 4; with --ray, "
        "as many as the cluster can run)"
    )
    add("--jobs", type=int, metavar="N", help=jobs)
    ray = "run on the Ray cluster at this address, such as auto or 10.0.0.1:6379"
    add("--ray", metavar="ADDRESS", help=ray)
    watch = "go on with programs that appear in the folders later, until Ctrl-C"
    add("--watch", action="store_true", help=watch)
    add("--resume", metavar="DIR", help="continue an interrupted triage")
    return parser
