"""Options of the command line alone: what to do, and what to print."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.flags import above_zero, option


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """What to list."""

    list_strategies: bool = option(False, help="list the strategies and leave")


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """Whether to sweep; ``Sweeping`` has how."""

    dynamic_sweep: bool = option(
        False,
        help="run the program, compiled once, at many sizes of its dynamic dims; tell "
        "at which it fails, and where it passes next to these; with `--until`, reduce "
        "that failure there",
        common=True,
        brief="find the sizes at which the program fails",
    )


@dataclass(frozen=True, kw_only=True)
class CaptureOptions:
    """Whether to find the program in a script that fails."""

    capture: bool = option(
        False,
        help="what follows is a command that fails, run as it is: the program that "
        "fails in it is found, and reduced",
        more="The command begins with the first word that is no option; `--` may stand "
        "before it. [What is captured](capture.md)",
        common=True,
        brief="run the command that follows, and reduce the program that fails in it",
    )
    program: int | None = option(
        None,
        metavar="N",
        help="of several captured programs this one, failed or not (default: the one "
        "that failed); also with the folder of an earlier `--capture` in the place of "
        "`MODEL.pt2`",
        check=above_zero,
    )


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """What to do instead of a new run."""

    resume: str | None = option(
        None,
        metavar="DIR",
        help="go on with the run in that folder, which was killed or stopped: nothing "
        "is asked again, and all is as it was told then but `--max-checks`, "
        "`--max-minutes`, `--max-disk` and `--jobs`; `MODEL.pt2` only if it has been "
        "moved",
        more="[In full](#going-on)",
        never_empty=True,
        beside_resume=True,
        common=True,
        brief="go on with a run that was killed or stopped",
    )
    candidate: str | None = option(
        None,
        metavar="DIGEST",
        help="write a candidate that the run in `--out DIR` has met, its by-catch say",
        more="A few digits of it will do. All is as that run was told; `MODEL.pt2` "
        "only if it has been moved",
        never_empty=True,
    )
    report: str | None = option(
        None,
        metavar="DIR",
        help="write `report.html` of the run in that folder anew: the failure, the "
        "program before and after, the search, each check",
        more="[In full](#the-report)",
        never_empty=True,
        common=True,
        brief="write `report.html` of a run anew",
    )
    verify: bool = option(
        False,
        help="`MODEL.pt2` is a `repro.py` instead: run it in an empty folder and say "
        "how it fails; exit 0 if as its header states, else 3",
        more="`shrinkfx verify repro.py` is the same. It runs [as a stranger would run "
        "it](#verification). The folder of a run stands for the one in it",
        common=True,
        brief="run a `repro.py` in an empty folder: does it fail?",
    )
    across: tuple[str, ...] = option(
        (),
        repeated=True,
        metavar="PYTHON",
        help="with `--verify`: run it with this interpreter as well, that of an "
        "environment with another PyTorch; may be repeated",
        more="Nothing but PyTorch need be installed there. What it did with each is "
        "told; the exit code is that of the first run",
        never_empty=True,
    )
    torch: str | None = option(
        None,
        metavar="LIST",
        help="with `--verify`: also run the repro on these versions of PyTorch, such "
        "as `2.13.0,2.14.1`; `bisect`: find the first version on which it fails. Each "
        "missing version is installed in an environment of its own",
        more="[How to use it](explain.md#other-versions-of-pytorch)",
        never_empty=True,
    )
    yes: bool = option(
        False,
        help="with `--torch`: install missing versions without asking",
    )


@dataclass(frozen=True, kw_only=True)
class PrintOptions:
    """What is seen of a run."""

    json: bool = option(
        False,
        help="one JSON object per line on stdout for start, baseline, check, step, "
        "by-catch and end ([docs/reference.md](#events)); what is for people goes to "
        "stderr",
        beside_resume=True,
    )
    verbose: bool = option(
        False,
        flags=("-v", "--verbose"),
        help="a line per check",
        more="With an error, where it comes from",
        apart="loudness",
        beside_resume=True,
        common=True,
    )
    quiet: bool = option(
        False,
        flags=("-q", "--quiet"),
        help="only the result",
        apart="loudness",
        beside_resume=True,
        common=True,
    )
    no_progress: bool = option(
        False,
        help="plain lines instead of a live line",
        more="Where nothing is said for a minute, a line with what is being done",
        beside_resume=True,
    )


@dataclass(frozen=True, kw_only=True)
class TellOptions:
    """What to tell instead of a run."""

    list_runs: str | None = option(
        None,
        flags=("--list",),
        metavar="FOLDER",
        const="shrinkfx-out",
        help="tabulate the runs in a folder (default: `shrinkfx-out`) and leave: their "
        "failures, what they came to, and which of them may go on",
        more="[What is told](#runs-in-a-folder)",
        never_empty=True,
        common=True,
        brief="tabulate the runs there (default: `shrinkfx-out`)",
    )
    print_completion: str | None = option(
        None,
        choices=("bash", "zsh"),
        help="print a script that has this shell complete options, and leave",
        more="[How to use it](#completion)",
    )
