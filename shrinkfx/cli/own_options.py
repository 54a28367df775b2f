"""Options that only the command line has: tasks, and what is printed."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.flags import option, require_above_zero


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Option that lists the strategies."""

    list_strategies: bool = option(False, help="list the strategies and exit")


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Option that starts a sweep; ``Sweeping`` holds the settings of the sweep."""

    dynamic_sweep: bool = option(
        False,
        help="compile the program once and run it at many sizes of its dynamic "
        "dims; report the failing sizes and the nearest passing sizes; with "
        "`--until`, reduce that failure at the failing sizes",
        brief="find the sizes at which the program fails",
    )


@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """Options that find the program in a failing script."""

    capture: bool = option(
        False,
        help="run the failing command that follows, find the program that fails in "
        "it, and reduce that program",
        more="The command begins with the first word that is not an option; `--` "
        "may precede it. [What is captured](capture.md)",
        brief="run the failing command that follows, and reduce the program that "
        "fails in it",
    )
    program: int | None = option(
        None,
        metavar="N",
        help="of the programs that `--capture` found, reduce the one with this "
        "number (default: the one that failed in the command); `MODEL.pt2` may be "
        "the folder of an earlier `--capture`",
        check=require_above_zero,
    )


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Options that select a task other than a new run."""

    resume: str | None = option(
        None,
        metavar="DIR",
        help="continue an interrupted run with its original options; completed "
        "checks are not repeated; only `--max-checks`, `--max-minutes`, "
        "`--max-disk` and `--jobs` may change; add `MODEL.pt2` only if that "
        "file has moved",
        more="[In full](#going-on)",
        never_empty=True,
        works_with_resume=True,
        brief="continue an interrupted run",
    )
    candidate: str | None = option(
        None,
        metavar="DIGEST",
        help="write the repro of a candidate of an earlier run, for example one that "
        "shows a different failure; `--out DIR` names the folder of that run",
        more="The first few digits suffice. The options are those of that run; add "
        "`MODEL.pt2` only if that file has moved",
        never_empty=True,
    )
    report: str | None = option(
        None,
        metavar="DIR",
        help="regenerate `report.html` for an existing run: the failure, the "
        "program before and after, the search, each check",
        more="[In full](#the-report)",
        never_empty=True,
        brief="regenerate `report.html` for an existing run",
    )
    verify: bool = option(
        False,
        help="same as `shrinkfx verify REPRO.py`: run REPRO.py in an empty folder, and "
        "report how it fails; exit code 0 if it fails as its header states, else 3",
        more="The repro runs in a [clean environment](#verification). Instead of "
        "REPRO.py, you may pass the folder of a run; shrinkfx then uses the repro in "
        "it",
        brief="run a `repro.py` in an empty folder: does it fail?",
    )
    across: tuple[str, ...] = option(
        (),
        repeated=True,
        metavar="PYTHON",
        help="with `--verify`: also run the repro with this Python interpreter, "
        "from an environment with another PyTorch; may be repeated",
        more="That environment only needs PyTorch. shrinkfx reports the outcome "
        "for each interpreter; the exit code is that of the first run",
        never_empty=True,
    )
    torch: str | None = option(
        None,
        metavar="LIST",
        help="with `--verify`: also run the repro on these versions of PyTorch, "
        "such as `2.13.0,2.14.1`; `bisect`: find the first version on which "
        "it fails. Each missing version is installed in an environment of its "
        "own",
        more="[How to use it](explain.md#other-versions-of-pytorch)",
        never_empty=True,
    )
    yes: bool = option(
        False,
        help="with `--torch`: install missing versions without asking",
    )


@dataclass(frozen=True, kw_only=True)
class PrintOptions:
    """Options that select what a run prints."""

    json: bool = option(
        False,
        help="print one JSON object per line on stdout for start, baseline, check, "
        "step, `other-failure` and end "
        "([docs/reference.md](#events)); human-readable output goes to stderr",
        works_with_resume=True,
    )
    verbose: bool = option(
        False,
        flags=("-v", "--verbose"),
        help="print one line per check",
        more="An error also prints its traceback",
        exclusive_group="loudness",
        works_with_resume=True,
        common=True,
    )
    quiet: bool = option(
        False,
        flags=("-q", "--quiet"),
        help="print only the result",
        exclusive_group="loudness",
        works_with_resume=True,
        common=True,
    )
    no_progress: bool = option(
        False,
        help="print plain lines instead of a live status line",
        more="After a minute without output, a line states the current step",
        works_with_resume=True,
    )


@dataclass(frozen=True, kw_only=True)
class InformationOptions:
    """Options that print information instead of starting a run."""

    list_runs: str | None = option(
        None,
        flags=("--list",),
        metavar="FOLDER",
        const="shrinkfx-out",
        help="list the runs in a folder (default: `shrinkfx-out`) with their "
        "failures, their results, and whether they can be resumed; then exit",
        more="[What is listed](#runs-in-a-folder)",
        never_empty=True,
        brief="list the runs in a folder (default: `shrinkfx-out`)",
    )
    print_completion: str | None = option(
        None,
        choices=("bash", "zsh"),
        help="print a completion script for this shell, and exit",
        more="[How to use it](#completion)",
    )
