"""What explanations of the cases are worth: each statement right, missing or wrong.

    python benchmarks/causes.py CASE=FOLDER ...

A case of ``repros/``, and the output folder of a run of it (with ``--explain`` for its
decision). What is right was written down before anything was explained: ``[cause]`` in
its ``expected.toml``.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from shrinkfx.findings.operators import Operator
from shrinkfx.findings.record import Explanation

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.causes import Cause, Judged, Stated, judge  # noqa: E402 - found there

MARKS = {Judged.RIGHT: "right", Judged.MISSING: "-", Judged.WRONG: "WRONG"}
COLUMNS = (
    *("operator", "kernel", "line", "decision"),
    *("value", "size", "symbol", "input", "dim"),
)


def main(*named: str) -> None:
    print(f"| case | {' | '.join(COLUMNS)} |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for case, folder in (name.split("=", 1) for name in named):
        table = tomllib.loads((ROOT / "repros" / case / "expected.toml").read_text())
        cause = Cause.read(table["cause"])
        told = json.loads((Path(folder) / "explain.json").read_text())
        found = Explanation.from_json(told)
        sources = sources_of(cause, ROOT / "repros" / case)
        judged = judge(cause, stated_by(found, cause, sources))
        cells = [MARKS[judged[name]] if name in judged else "" for name in COLUMNS]
        if len(found.culprits) > 1:
            cells[0] += f", one of {len(found.culprits)}"
        print(f"| {case} | {' | '.join(cells)} |", flush=True)


def sources_of(cause: Cause, case: Path) -> dict[str, Path]:
    """Find the files that lines of the model are in, by the names that are told."""
    files = [*case.parent.glob("*.py"), *case.glob("*.py")]
    package, _, rest = cause.source.partition("/")
    if package and (found := importlib.util.find_spec(package)):
        folders = found.submodule_search_locations or ()
        files += [Path(folder) / rest for folder in folders]
    return {file.name: file for file in files}


def stated_by(found: Explanation, cause: Cause, sources: Mapping[str, Path]) -> Stated:
    """Take from an explanation what the examiner has written about.

    Where it names several operators, none surer than another, the right one is taken.
    """
    right = [one for one in found.culprits if one.operator in cause.operators]
    guilty = next(iter([*right, *found.culprits]), None)
    chain = found.chain
    symbol = next(iter(chain.limit.symbols if chain and chain.limit else ()), None)
    return Stated(
        operator=guilty.operator if guilty else "",
        kernel=[operator.operator for operator in kernel_of(found)],
        line=line_of(guilty, sources) if guilty else "",
        decision=decision_of(found),
        value=chain.value if chain else None,
        size=chain.limit.value if chain and chain.limit else None,
        symbol=symbol.name if symbol else "",
        input=symbol.input if symbol else "",
        dim=symbol.dim if symbol else None,
    )


def kernel_of(found: Explanation) -> tuple[Operator, ...]:
    """List what the explanation says the guilty kernel computes."""
    if found.chain is not None:
        return found.chain.fused
    if found.values is not None and found.values.kernel:
        return found.values.culprits
    return (
        found.compile_error.culprits
        if found.compile_error and found.compile_error.kernel
        else ()
    )


def line_of(operator: Operator, sources: Mapping[str, Path]) -> str:
    """Read the line of the model that an explanation names."""
    name, _, number = operator.line.partition(":")
    if name not in sources:
        return operator.line
    return sources[name].read_text().splitlines()[int(number) - 1]


def decision_of(found: Explanation) -> str:
    """Name the decision as the examiner does."""
    if found.decisions is None:
        return ""
    for one in found.decisions.left_out:
        if one.only_shows:
            continue
        lowers = one.subsystem == "lowerings"
        return f"lowering {one.origin or one.name}" if lowers else f"pass {one.name}"
    switching = found.decisions.switching
    if switching is None or switching.unknown:
        return ""
    if names := [setting.option for setting in switching.passes_with]:
        return f"switch {names[0]}"
    return "" if found.decisions.unknown else "none"


if __name__ == "__main__":
    main(*sys.argv[1:])
