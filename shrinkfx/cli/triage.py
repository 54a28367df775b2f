"""``shrinkfx triage``: from many failing programs to a list of bugs."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from shrinkfx.check.limits import usual_jobs
from shrinkfx.cli.parser import make_parser
from shrinkfx.cli.streams import treat_sigterm_as_ctrl_c
from shrinkfx.errors import ShrinkfxError, UsageError
from shrinkfx.options.options import check_folders
from shrinkfx.system.folders import output_folder
from shrinkfx.triage.campaign import STATE, Campaign, Outcome, run_campaign, save
from shrinkfx.triage.programs import find_programs
from shrinkfx.triage.report import Bug, find_bugs, render_lines, write_page

NEW_BUG = 10
"""Exit code if there is a bug that was not known before."""

_DESCRIPTION = """\
Reduce many failing programs, and report the bugs behind them: the first program of
each bug is reduced; the others are recognized by its operators, without a search.
"""

_EPILOG = f"""\
Options after -- are those of each run: shrinkfx triage failures -- --preload ops.py
Exit codes: 0 if every bug was known before, {NEW_BUG} if one is new, 4 after Ctrl-C.
"""


def main(words: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    words, options = _split(words)
    arguments = _parser().parse_args(words)
    try:
        with treat_sigterm_as_ctrl_c():
            campaign, out = _start(arguments, options)
            return _run(campaign, out)
    except ShrinkfxError as error:
        print(f"shrinkfx triage: {error}", file=sys.stderr)
        return error.exit_code


def _split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    if "--" not in words:
        return words, ()
    index = words.index("--")
    return words[:index], words[index + 1 :]


def _start(
    arguments: argparse.Namespace, options: Sequence[str]
) -> tuple[Campaign, Path]:
    """Return the campaign and its folder: a new one, or the one to resume."""
    if arguments.resume:
        if arguments.paths or options:
            raise UsageError("--resume continues a triage: omit paths and options")
        return Campaign.load(arguments.resume), arguments.resume
    if not arguments.paths:
        raise UsageError("the paths of the programs are missing: shrinkfx triage DIR")
    _require_run_options(options)
    check_folders("--known", arguments.known)
    programs = find_programs(arguments.paths, options)
    out = output_folder(arguments.out, Path("triage"))
    if (out / STATE).exists():
        resume = f"shrinkfx triage --resume {shlex.quote(str(out))}"
        raise UsageError(f"--out {out} contains a triage; to continue it: {resume}")
    known = tuple(str(Path(name).resolve()) for name in arguments.known)
    jobs = arguments.jobs or usual_jobs()
    return Campaign(tuple(programs), known, jobs), out


def _require_run_options(options: Sequence[str]) -> None:
    """End with a usage error if the options of the runs are invalid."""
    given = make_parser().parse_args([*options])
    if given.model is not None or given.out or given.known:
        raise UsageError(
            "after --, only options are allowed, without --out and --known: "
            f"{shlex.join(options)}"
        )


def _run(campaign: Campaign, out: Path) -> int:
    last = campaign

    def ended(now: Campaign, outcome: Outcome) -> None:
        nonlocal last
        last = now
        _write(now, out)
        done = f"[{len(now.outcomes)}/{len(now.programs)}]"
        name, seconds = Path(outcome.program.path).name, round(outcome.seconds)
        reason = (outcome.reason.splitlines() or [""])[0]
        ending = f": {reason}" if reason else ""
        print(f"{done} {name}: {outcome.status}, {seconds} s{ending}", file=sys.stderr)

    _write(campaign, out)
    try:
        last = run_campaign(campaign, out, ended)
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    bugs = _write(last, out)
    for line in render_lines(last, bugs, out):
        print(line)
    if interrupted:
        print(f"to continue: shrinkfx triage --resume {shlex.quote(str(out))}")
        return 4
    return NEW_BUG if any(not bug.is_known for bug in bugs) else 0


def _write(campaign: Campaign, out: Path) -> list[Bug]:
    """Write the state and the page, and return the bugs."""
    bugs = find_bugs(campaign)
    save(campaign, out, [bug.to_json() for bug in bugs])
    write_page(campaign, bugs, out)
    return bugs


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
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="a .pt2, a folder with .pt2 files, or a list of programs (.jsonl)",
    )
    parser.add_argument(
        "--known",
        action="append",
        default=[],
        metavar="DIR",
        help="folder with known bugs: folders of earlier runs; may be repeated",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the results"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="number of programs at a time (default: half the cores, at most 4)",
    )
    parser.add_argument(
        "--resume", type=Path, metavar="DIR", help="continue an interrupted triage"
    )
    return parser
