"""Options of the command line alone: what to do, and what to print."""

from __future__ import annotations

from dataclasses import dataclass

from shrinkfx.flags import option


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
    )
    candidate: str | None = option(
        None,
        metavar="DIGEST",
        help="write a candidate that the run in `--out DIR` has met, its by-catch say",
        more="`MODEL.pt2`, `--inputs` and `--preload` are as in that run; after a "
        "sweep `--inputs` is its `failing-1.pt`",
        never_empty=True,
    )
    verify: bool = option(
        False,
        help="`MODEL.pt2` is a `repro.py` instead: run it in an empty folder and say "
        "how it fails; exit 0 if as its header states, else 3",
        more="It runs [as a stranger would run it](#verification)",
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
    )
    quiet: bool = option(
        False,
        flags=("-q", "--quiet"),
        help="only the result",
        apart="loudness",
        beside_resume=True,
    )
    no_progress: bool = option(
        False,
        help="plain lines instead of a bar",
        more="Where nothing is said for a minute, a line with what is being done",
        beside_resume=True,
    )
