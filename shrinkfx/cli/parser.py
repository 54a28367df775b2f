"""What the command line takes."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import NoReturn

from shrinkfx.failure.signature import ANY, MEANING
from shrinkfx.options import GUARD_PAGES
from shrinkfx.protocol.choices import ARCHS, Backend, Build, Probe
from shrinkfx.version import __version__

EXIT_CODES = {
    0: "reduced and verified",
    1: "internal error",
    2: "bad usage or input",
    3: "the program does not fail as asked; says what it does instead",
    4: "stopped early by budget or Ctrl-C; the best so far is written, and verified if "
    "there was time",
    5: "reduced, but the repro could not be verified",
    6: "a sweep without --until has found sizes that fail (0: it found none)",
}

_EXAMPLES = """\
examples:
  shrinkfx model.pt2
      reduce whatever failure the program shows
  shrinkfx model.pt2 --until assert --inputs failing.pt --preload my_ops.py
      reduce an assertion that only these inputs trigger, with custom operators
  shrinkfx model.pt2 --until mismatch --inductor-config max_autotune=True \\
      --max-minutes 30 --out report
      reduce a wrong result under the failing run's own settings, for half an hour
  shrinkfx model.pt2 --dynamic-sweep
      find the sizes of dynamic dims at which the program fails
  shrinkfx --resume report
      go on with a run that was killed or stopped
"""


class _Parser(argparse.ArgumentParser):
    """Says what may have been meant by an option that there is not."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized"):
            known = list(self._option_string_actions)
            for word in re.findall(r"(?<= )--[\w-]+", message):
                for near in difflib.get_close_matches(word, known, n=1):
                    message += f"\ndid you mean {near}?"
        super().error(f"{message}\nall options: shrinkfx --help")


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="shrinkfx",
        allow_abbrev=False,
        usage="shrinkfx MODEL.pt2 [options]\n       shrinkfx --resume DIR",
        description="Reduce an exported program that fails under AOTInductor to the "
        "smallest program that fails in the same way, as one repro.py.",
        epilog=_EXAMPLES + "\n" + _tables(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", nargs="?", metavar="MODEL.pt2", help="the program")
    version = f"shrinkfx {__version__}"
    parser.add_argument("--version", action="version", version=version)
    _add_failure_options(parser)
    _add_program_options(parser)
    _add_search_options(parser)
    _add_sweep_options(parser)
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
        "it exits with 0 if that still fails, with 125 if it cannot tell; {inputs} is "
        "replaced by the path of the failing inputs, a torch.saved tuple",
    )
    group.add_argument(
        "--baseline-runs",
        type=int,
        metavar="N",
        help="runs of the original before it is said not to fail (default: up to 100, "
        "for as long as compiling it took, a minute at most)",
    )
    group.add_argument(
        "--guard-pages",
        default="auto",
        choices=GUARD_PAGES,
        help="have each tensor of a CPU program lie against an inaccessible page, so "
        "that touching what is beyond it faults in every run; auto (the default): "
        "for --until ima and crash",
    )
    group.add_argument(
        "--rtol",
        type=float,
        metavar="R",
        help="how far a value may be from eager's, relative to that (default: that of "
        "torch.testing for its dtype)",
    )
    group.add_argument("--atol", type=float, metavar="A", help="the same, absolutely")
    group.add_argument(
        "--strict",
        action="store_true",
        help="strides must be eager's as well, of dims larger than 1",
    )
    group.add_argument(
        "--timeout",
        type=float,
        metavar="S",
        help="seconds per check, without those in which it waits for a busy machine; "
        "default: ten times the original, 1 to 10 minutes",
    )


def _add_program_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the failing program")
    group.add_argument(
        "--inputs",
        metavar="FILE",
        help="failing inputs, where they differ from those in the .pt2: a torch.saved "
        "tuple, or a dict with args and kwargs; for a sweep also a .py with a function "
        "inputs(**sizes)",
    )
    group.add_argument(
        "--preload",
        action="append",
        default=[],
        metavar="MODULE|FILE",
        help="module, .py or .so that registers custom operators; may be repeated",
    )
    group.add_argument("--device", metavar="cpu|cuda", help="move the program there")
    group.add_argument(
        "--backend",
        default=Backend.AUTO,
        choices=[b.value for b in Backend],
        help="interpreter: check the CUDA kernels without a GPU; auto: do that for a "
        "CUDA program where there is no GPU (default)",
    )
    group.add_argument(
        "--arch",
        default=ARCHS[0],
        choices=ARCHS,
        help=f"the GPU that the interpreter's kernels are made for ({ARCHS[0]})",
    )
    group.add_argument(
        "--probe",
        choices=[p.value for p in Probe],
        help="what the interpreter looks at; default: whatever shows the failure",
    )
    group.add_argument(
        "--all-probes",
        action="store_true",
        help="have it look at all of these, though one has shown the failure",
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
        help="end after M minutes, baseline and verification included: what can be "
        "done without is left out, and time for a verified repro is kept",
    )
    group.add_argument(
        "--max-disk",
        type=float,
        metavar="GB",
        help="gigabytes that it may take of $TMPDIR (default: what is free there)",
    )
    group.add_argument(
        "--build",
        default=Build.FAST,
        choices=list(Build),
        help="how candidates for the CPU are built; fast (the default): what all "
        "models share is compiled once, and the result is confirmed with "
        "AOTInductor's own build, stock",
    )
    group.add_argument("--strategies", metavar="NAME,...", help="only these, in order")
    group.add_argument(
        "--list-strategies", action="store_true", help="list the strategies and leave"
    )


def _add_sweep_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("dynamic shapes")
    group.add_argument(
        "--dynamic-sweep",
        action="store_true",
        help="run the program, compiled once, at many sizes of its dynamic dims; "
        "tell at which it fails, and where it passes next to these; "
        "with --until, reduce that failure there",
    )
    group.add_argument(
        "--examples", type=int, metavar="N", help="sizes to draw (default 200)"
    )
    group.add_argument(
        "--seed", type=int, metavar="S", help="another one draws others (default 0)"
    )
    group.add_argument(
        "--max-elements",
        type=int,
        metavar="E",
        help="of the largest tensor (default 4194304, or less if memory is short)",
    )
    group.add_argument(
        "--beyond-ranges",
        action="store_true",
        help="also try sizes just outside of the declared ones, which the program must "
        "refuse (AOTI_RUNTIME_CHECK_INPUTS=1) or run as eager does",
    )


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out", metavar="DIR", help="default: shrinkfx-out/<model>-<number>"
    )
    group.add_argument(
        "--resume",
        metavar="DIR",
        help="go on with the run in that folder, which was killed or stopped: nothing "
        "is asked again, and all is as it was told then but --max-checks, "
        "--max-minutes and --max-disk; MODEL.pt2 only if it has been moved",
    )
    group.add_argument(
        "--candidate",
        metavar="DIGEST",
        help="write a candidate that the run in --out DIR has met, its by-catch say",
    )
    group.add_argument(
        "--verify",
        action="store_true",
        help="MODEL.pt2 is a repro.py instead: run it in an empty folder and say how "
        "it fails; exit 0 if as its header states, else 3",
    )
    group.add_argument(
        "--json",
        action="store_true",
        help="one JSON object per line on stdout for start, baseline, check, step, "
        "by-catch and end (docs/reference.md); what is for people goes to stderr",
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
