"""shrinkfx and PyTorch's minifier for torch.compile, on the same failing scripts.

Both tools get each script of ``compile_scripts.py``, as their users would do it:

    shrinkfx --capture --out out python script.py
    TORCHDYNAMO_REPRO_AFTER=aot TORCHDYNAMO_REPRO_LEVEL=N python script.py
    python minifier_launcher.py                   # which PyTorch has written

N is what ``torch/_dynamo/config.py`` advises: 2 for errors, 3 for crashes, 4 for wrong
values. An error at run time is tried with 3 if the launcher of 2, which has no inputs,
does not fail; the last try counts. PyTorch's minifier is helped: the processes that it
starts have the planted fault. A tool has reduced a script if its reduced program fails
in the same way in a new process, and, of PyTorch's minifier, not without the plant.

    python benchmarks/peers_compile.py --out DIR [--only NAME ...] [--tool shrinkfx]

A run with the same ``--out`` leaves out what it has measured. CPU-seconds are
those of the process tree. Prints rows, and writes ``peers-compile.json`` and
``peers-compile.md``.
"""

from __future__ import annotations

import argparse
import ast
import json
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from compile_scripts import SCRIPTS, Script
from peer_rows import kept
from peers import stamped
from tools import Case, Ran, Result, caches_of, capture, ended, run
from torch_side import COMPARING, FAULTS, Outcome, is_the_failure, outcome_of

from shrinkfx.failure.signature import Kind

LEVELS = {Kind.COMPILE_ERROR: (2,)} | dict.fromkeys(COMPARING, (4,))
LEVELS |= dict.fromkeys(FAULTS, (3,))
"""``TORCHDYNAMO_REPRO_LEVEL`` by kind of failure; of others it is 2, then 3."""

SITE = """
import sys
from pathlib import Path

script = Path(sys.orig_argv[-1])
names = "minifier_launcher.py", "repro.py"
if script.name in names or script.parent.name == "isolate":
    for name in {planted}:
        __import__(name)
"""
"""The ``sitecustomize`` of the minifier: not every process needs PyTorch."""


@dataclass(frozen=True)
class Row:
    """A script, and what both tools made of it."""

    script: str
    kind: str
    minimum: int
    shrinkfx: Result
    pytorch: Result

    @property
    def misses(self) -> str:
        """What the result of shrinkfx lacks, or ''."""
        left = self.shrinkfx.operators
        if self.shrinkfx == NOT_RUN:
            return "not run"
        if not self.shrinkfx.refails:
            return "no verified repro"
        small = left is not None and left <= self.minimum + 1
        return "" if small else "too many operators"

    @property
    def ratio(self) -> float | None:
        """CPU-seconds of shrinkfx by those of its peer, if both reduce."""
        both = self.shrinkfx.refails and self.pytorch.outcome == Outcome.REDUCED
        return self.shrinkfx.total / self.pytorch.total if both else None


NOT_RUN = Result("not run")


def measure(script: Script, folder: Path, tools: Sequence[str], limit: float) -> Row:
    """Measure a script with the tools that have no result yet."""

    def side(tool: str) -> Result:
        def measured() -> Result:
            return stamped(TOOLS[tool](script, _emptied(folder / tool), limit))

        file = folder / f"{tool}.json"
        return kept(file, measured) if tool in tools or file.exists() else NOT_RUN

    sides = side("shrinkfx"), side("pytorch")
    return Row(script.name, script.kind, script.minimum, *sides)


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def with_shrinkfx(script: Script, folder: Path, limit: float) -> Result:
    """Capture and reduce a script, and run the repro once more in a bare process."""
    path = script.write(folder)
    out = folder / "out"
    result = capture(path, folder, limit, _own_caches(folder))
    if not result.refails:
        return result
    again = _emptied(folder.with_name("again"))
    shutil.copy(out / "repro.py", again)
    variables = _own_caches(again)
    ran = run(_python("repro.py"), again, limit, variables, caches_of(folder))
    kind = json.loads((out / "summary.json").read_text())["kind"]
    same = any(kind in kinds and script.kind in kinds for kinds in (COMPARING, FAULTS))
    refails = ran.code not in (0, 125) and (same or kind == script.kind)
    how = result.ended or ("" if refails else f"{kind}, exit {ran.code} of the repro")
    return Result(**{**asdict(result), "refails": refails, "ended": how})


def with_pytorch(script: Script, folder: Path, limit: float) -> Result:
    """Run the script as PyTorch advises, then the launcher that it has written."""
    cpu = wall = 0.0
    for level in LEVELS.get(Kind(script.kind), (2, 3)):
        _emptied(folder)
        ran = _dump(script, folder, level, limit)
        cpu, wall, outcome = ran.cpu, ran.wall, Outcome.REFUSED
        if launcher := max(folder.rglob("minifier_launcher.py"), default=None):
            variables = _planting(script, folder)
            command = _python(str(launcher))
            home, caches = folder / "minifier", caches_of(folder)
            ran = run(command, home, limit - cpu, variables, caches)
            cpu, wall, outcome = cpu + ran.cpu, wall + ran.wall, outcome_of(ran)
        if outcome is not Outcome.REFUSED:
            break
    last = (ran.said.strip() or "nothing").splitlines()[-1]
    how = ended(ran, last if launcher else "no launcher was written")
    queries = len(list(folder.glob("minifier/isolate/*.py")))
    repro, left = folder / "minifier" / "repro.py", None
    if repro.exists():
        left = count_operators(repro.read_text())
        refails = _refails(script, folder, limit)
        outcome = Outcome.REDUCED if refails else Outcome.SLIPPED
    return Result(
        how,
        checks=queries,
        total=cpu,
        wall=wall,
        operators=left,
        refails=outcome is Outcome.REDUCED,
        outcome=outcome,
        flags=(f"TORCHDYNAMO_REPRO_LEVEL={level}",),
    )


def _dump(script: Script, folder: Path, level: int, limit: float) -> Ran:
    path = script.write(folder / "script")
    variables = {
        **_own_caches(folder),
        "TORCHDYNAMO_REPRO_AFTER": "aot",
        "TORCHDYNAMO_REPRO_LEVEL": str(level),
    }
    command = _python(str(path))
    return run(command, folder / "script", limit, variables, caches_of(folder))


def _refails(script: Script, folder: Path, limit: float) -> bool:
    """Run the repro of PyTorch's minifier again, with the plant and without it."""
    case = Case(script.name, folder, script.kind, script.message)

    def fails(place: str, variables: Mapping[str, str]) -> bool:
        home = folder / place
        ran = run(
            _python(str(folder / "minifier" / "repro.py")),
            home,
            limit,
            {**variables, **_own_caches(home)},
            caches_of(folder),
        )
        return is_the_failure(case, ran)

    if not fails("again", _planting(script, folder)):
        return False
    return not (script.planted and fails("without", {}))


def _planting(script: Script, folder: Path) -> dict[str, str]:
    """Give the variables with which the minifier's processes have the plant."""
    site = folder / "script" / "sitecustomize.py"
    site.write_text(SITE.format(planted=script.planted))
    return {**_own_caches(folder), "PYTHONPATH": str(site.parent)}


def _own_caches(folder: Path) -> dict[str, str]:
    """Use a separate cache, because the keys of Inductor's caches ignore plants."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}


def _python(script: str) -> list[str]:
    return [sys.executable, "-W", "ignore", script]


def count_operators(source: str) -> int | None:
    """Count the calls of operators in a graph that PyTorch has printed.

    Returns:
        None if the source is not valid Python, for example a method without a body.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    calls = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call))
    names = [ast.unparse(called) for called in calls]
    operators = [name for name in names if name.startswith("torch.ops.")]
    return len([name for name in operators if ".sym_" not in name])


TOOLS = {"shrinkfx": with_shrinkfx, "pytorch": with_pytorch}

HEAD = """\
| script | kind | minimum | shrinkfx: operators | checks | CPU-s | s | \
PyTorch's minifier | operators | checks | CPU-s | s | ratio | target |
"""


def table(rows: Sequence[Row]) -> str:
    """Write a line of Markdown for each script, and a summary."""
    rule = "|" + " --- |" * (HEAD.count("|") - 1)
    return "\n".join([HEAD + rule, *map(_line, rows), "", *summary(rows)]) + "\n"


def _line(row: Row) -> str:
    def figures(result: Result) -> list[str]:
        if result == NOT_RUN:
            return [""] * 4
        left = "" if result.operators is None else str(result.operators)
        return [left, str(result.checks), f"{result.total:.0f}", f"{result.wall:.0f}"]

    peer = row.pytorch
    cut = ", cut off" if peer.ended.startswith("cut") and peer.checks else ""
    said = f" ({peer.ended})" if peer.outcome in NEEDS_WORDS and peer.ended else ""
    cells = [row.script, row.kind, str(row.minimum), *figures(row.shrinkfx)]
    cells += [
        f"{peer.outcome or peer.ended}{cut}{said}".replace("|", "\\|"),
        *figures(peer),
    ]
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return f"| {' | '.join([*cells, ratio, row.misses or 'met'])} |"


NEEDS_WORDS = (Outcome.RAISED, Outcome.REFUSED, Outcome.DIED)


def write(rows: Sequence[Row], folder: Path) -> None:
    """Write the rows for programs, and for people."""
    about = {"torch": torch.__version__, "rows": [asdict(row) for row in rows]}
    (folder / "peers-compile.json").write_text(json.dumps(about, indent=1))
    (folder / "peers-compile.md").write_text(table(rows))


def summary(rows: Sequence[Row]) -> list[str]:
    """Say how many scripts each tool reduces, at which cost, and what misses."""
    ours = [row for row in rows if row.shrinkfx != NOT_RUN]
    theirs = [row for row in rows if row.pytorch != NOT_RUN]
    verified = sum(row.shrinkfx.refails for row in ours)
    reduced = sum(row.pytorch.outcome == Outcome.REDUCED for row in theirs)
    lines = [
        f"- shrinkfx reduces {verified} of {len(ours)} scripts, PyTorch's minifier "
        f"{reduced} of {len(theirs)}."
    ]
    if ratios := [row.ratio for row in rows if row.ratio]:
        mean, most = statistics.geometric_mean(ratios), max(ratios)
        is_complete = len(ours) == len(theirs) == len(rows)
        verdict = ("met" if mean <= TARGET else "missed") if is_complete else "open"
        lines.append(
            f"- CPU-seconds on the {len(ratios)} that both reduce: geometric mean "
            f"{mean:.2f}, at most {most:.2f} (target {TARGET}: {verdict})."
        )
    missed = [f"`{row.script}` ({row.misses})" for row in ours if row.misses]
    lines.append(f"- Target of shrinkfx missed: {', '.join(missed) or 'none'}.")
    for tool, run_ in (("shrinkfx", ours), ("PyTorch's minifier", theirs)):
        absent = [f"`{row.script}`" for row in rows if row not in run_]
        lines.append(f"- Not run with {tool}: {', '.join(absent) or 'none'}.")
    return lines


TARGET = 0.2
"""The part of its peer's CPU-seconds that shrinkfx may take, geometric mean."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--tool", choices=TOOLS, help="run this one only")
    parser.add_argument(
        "--limit", type=float, default=900, help="CPU-seconds per tool and script"
    )
    options = parser.parse_args()
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tools = [options.tool] if options.tool else list(TOOLS)

    def row(script: Script, tools: Sequence[str]) -> Row:
        return measure(script, folder / script.name, tools, options.limit)

    for script in SCRIPTS:
        if script.name in (options.only or [script.name]):
            print(_line(row(script, tools)), flush=True)
            write([row(each, []) for each in SCRIPTS], folder)
    rows = [row(script, []) for script in SCRIPTS]
    write(rows, folder)
    print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
