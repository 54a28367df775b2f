"""Compare two recordings of ``record.py``.

    python benchmarks/contract/compare.py BEFORE AFTER [--texts]

Prints the differences of each program in exit codes, result, files, keys and the code
of the repro, and the ratio of CPU-seconds. Exits with 1 if there is any difference.
With ``--texts``, prints the differences of texts too.
"""

from __future__ import annotations

import argparse
import difflib
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main() -> None:
    """Compare two folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--texts", action="store_true")
    asked = parser.parse_args()
    folders = asked.before, asked.after
    names = [{path.name for path in side.glob("*.json")} for side in folders]
    differ = False
    ratios = []
    for name in sorted(names[0] & names[1]):
        before, after = (json.loads((s / name).read_text()) for s in folders)
        for line in differences(before, after):
            differ = True
            print(f"{name.removesuffix('.json')}: {line}")
        if ratio := cost(before, after):
            ratios.append(ratio)
        if asked.texts:
            print(*text_differences(before, after), sep="")
    for name in sorted(names[0] ^ names[1]):
        print(f"{name.removesuffix('.json')}: recorded on one side only")
    print(f"compared: {len(names[0] & names[1])}")
    if ratios:
        print(f"CPU-seconds after / before: {statistics.geometric_mean(ratios):.2f}")
    sys.exit(differ)


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yield the differences of two records, without texts and times."""
    old, new = flat(behaviour(before)), flat(behaviour(after))
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) != new.get(path):
            yield f"{path}: {old.get(path)!r} -> {new.get(path)!r}"


def behaviour(record: dict[str, Any]) -> dict[str, Any]:
    """Select the part of a record on which scripts may depend."""
    if "searches" in record:
        return record
    result = {k: v for k, v in record["result"].items() if k not in _VARIES}
    keys = {name: dict.fromkeys(paths, 1) for name, paths in record["keys"].items()}
    script = record["texts"].get("repro.py", "")
    return {
        "exit": [run["code"] for run in record["runs"]],
        "result": result,
        "files": dict.fromkeys(record["files"], 1),
        "keys": keys,
        "sweep": [finding["sizes"] for finding in record["sweep"] or ()],
        "repro": [line for line in map(_code, script.splitlines()) if line],
    }


def _code(line: str) -> str:
    return line.partition("#")[0].rstrip()


_VARIES = {"cpu_seconds", "minimal_by_kind"}
"""Times, and values that are sentences."""


def flat(value: object, prefix: str = "") -> dict[str, object]:
    """Map the path of each value to it."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = dict(enumerate(value)).items()
    else:
        return {prefix: value}
    found: dict[str, object] = {}
    for key, each in items:
        found |= flat(each, f"{prefix}/{key}" if prefix else str(key))
    return found


def cost(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Return the CPU-seconds of the second run as a part of the first; 0 if unknown."""
    parts = [(each.get("result") or {}).get("cpu_seconds") for each in (before, after)]
    old, new = (sum(part.values()) if part else 0.0 for part in parts)
    return new / old if old else 0.0


def text_differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yield unified differences of all texts."""
    old, new = (texts(record) for record in (before, after))
    for name in old | new:
        a, b = (side.get(name, "").splitlines(keepends=True) for side in (old, new))
        yield from difflib.unified_diff(a, b, f"before/{name}", f"after/{name}")


def texts(record: dict[str, Any]) -> dict[str, str]:
    """Map the name of each text to it."""
    found = dict(record.get("texts", {}))
    for number, run in enumerate(record.get("runs", ())):
        found |= {f"{number}.{name}": run[name] for name in ("stdout", "stderr")}
    return found


if __name__ == "__main__":
    main()
