"""``shrinkfx triage``: from many failing programs to a list of bugs."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from shrinkfx.campaign import triage
from shrinkfx.campaign.report import render_lines
from shrinkfx.campaign.runs import Campaign, Outcome
from shrinkfx.campaign.triage import INTERRUPTED, NEW_BUG, Triage, resume_command
from shrinkfx.check.limits import usual_jobs
from shrinkfx.cli.parser import make_parser
from shrinkfx.cli.streams import treat_sigterm_as_ctrl_c
from shrinkfx.errors import ShrinkfxError, UsageError

_DESCRIPTION = """\
Reduce many failing programs, and report the bugs behind them: the first program of
each bug is reduced; the others are recognized by its operators, without a search.
"""

_EPILOG = f"""\
Options after -- are those of each run: shrinkfx triage failures -- --preload ops.py
Exit codes: 0 if every bug was known before, {NEW_BUG} if one is new,
{INTERRUPTED} after Ctrl-C.
"""


def main(words: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    words, options = _split(words)
    arguments = _parser().parse_args(words)
    try:
        with treat_sigterm_as_ctrl_c():
            done = _run(arguments, options)
    except ShrinkfxError as error:
        print(f"shrinkfx triage: {error}", file=sys.stderr)
        return error.exit_code
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
    if arguments.resume:
        if arguments.paths or options or arguments.known or arguments.out:
            raise UsageError(
                "--resume continues a triage with its programs and options: omit all "
                "others"
            )
        folder = arguments.resume
        return triage.resume(folder, ray=arguments.ray, listener=_print_outcome)
    if not arguments.paths:
        raise UsageError("the paths of the programs are missing: shrinkfx triage DIR")
    _require_run_options(options)
    return triage.triage(
        arguments.paths,
        options,
        known=arguments.known,
        out=arguments.out,
        jobs=arguments.jobs or usual_jobs(),
        ray=arguments.ray,
        listener=_print_outcome,
    )


def _require_run_options(options: Sequence[str]) -> None:
    """End with a usage error if the options of the runs are invalid."""
    given = make_parser().parse_args([*options])
    if given.model is not None or given.out or given.known:
        raise UsageError(
            "after --, only options are allowed, without --out and --known: "
            f"{shlex.join(options)}"
        )


def _print_outcome(campaign: Campaign, outcome: Outcome) -> None:
    count = f"[{len(campaign.outcomes)}/{len(campaign.programs)}]"
    name, seconds = Path(outcome.program.path).name, round(outcome.seconds)
    reason = (outcome.reason.splitlines() or [""])[0]
    ending = f": {reason}" if reason else ""
    print(f"{count} {name}: {outcome.status}, {seconds} s{ending}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
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
    path = "a .pt2, a folder with .pt2 files, or a list of programs (.jsonl)"
    add("paths", nargs="*", metavar="PATH", help=path)
    known = "folder with known bugs: folders of earlier runs; may be repeated"
    add("--known", action="append", default=[], metavar="DIR", help=known)
    add("--out", metavar="DIR", help="folder for the results")
    jobs = "number of programs at a time (default: half the cores, at most 4)"
    add("--jobs", type=int, metavar="N", help=jobs)
    ray = (
        "run the programs on the Ray cluster with this address (auto: of this machine)"
    )
    add("--ray", nargs="?", const="auto", metavar="ADDRESS", help=ray)
    add("--resume", metavar="DIR", help="continue an interrupted triage")
    return parser
