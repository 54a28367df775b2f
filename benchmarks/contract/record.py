"""Record what shrinkfx does today: ``python benchmarks/contract/record.py DIR``.

Runs each program of ``programs.py`` and writes ``DIR/NAME.json``: exit codes, the
result, the keys of the JSON files, and all texts. ``compare.py`` compares two such
folders. A program that is recorded already is skipped, so that a stopped recording can
continue. ``--part 1/2`` records every second program, for two processes side by side;
``--only NAME`` records one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from programs import ROOT, Program, programs
from synthetic import Blame, Needles, make_case, search

TIMEOUT_S = 1800.0

SEARCHES = range(100)
"""Numbers of the searches in which nothing is compiled."""

RESULT = (
    *("status", "until", "kind", "signature", "operators", "nodes", "inputs"),
    *("dynamic_dims", "checks", "verified", "minimal", "minimal_by_kind"),
    *("repro_form", "cpu_seconds"),
)
"""What is recorded of ``summary.json``."""

TEXTS = ("repro.py", "ISSUE.md")


def main() -> None:
    """Record the programs, and the searches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--part", default="1/1", metavar="K/N")
    parser.add_argument("--only", metavar="NAME")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    part, parts = map(int, asked.part.split("/"))
    for number, program in enumerate(programs()):
        place = asked.folder / f"{program.name}.json"
        chosen = (
            asked.only == program.name if asked.only else number % parts == part - 1
        )
        if chosen and not place.exists():
            print(program.name, flush=True)
            write(place, recorded(program))
    if part == 1 and not asked.only:
        write(asked.folder / "searches.json", {"searches": list(searches())})


def write(place: Path, record: dict[str, Any]) -> None:
    """Write all of a record or nothing."""
    draft = place.with_suffix(".part")
    draft.write_text(json.dumps(record, indent=1, sort_keys=True))
    draft.replace(place)


def searches() -> Iterator[dict[str, Any]]:
    """Search 100 programs of 50 operators for 3, with suspects."""
    for number in SEARCHES:
        run = asdict(search(make_case(number, 50, 3, Needles.NEAR, Blame.ROUGH)))
        yield {key: run[key] for key in ("checks", "left", "minimal")}


def recorded(program: Program) -> dict[str, Any]:
    """Run the commands of a program in an empty folder."""
    with tempfile.TemporaryDirectory(prefix="contract-") as name:
        folder = Path(name)
        for file, text in program.files.items():
            (folder / file).write_text(text)
        began = time.monotonic()
        runs = [run(command, folder) for command in program.commands]
        record: dict[str, Any] = {"runs": runs}
        record["seconds"] = round(time.monotonic() - began, 1)
        written = [*folder.glob("*/summary.json"), *folder.glob("*/sweep.json")]
        out = written[0].parent if written else folder / "out"
        summary = read(out / "summary.json")
        record["result"] = {key: summary.get(key) for key in RESULT}
        record["sweep"] = read(out / "sweep.json").get("findings")
        documents = sorted(out.glob("*.json"))
        record["keys"] = {
            path.name: sorted(anywhere(key, folder) for key in keys(read(path)))
            for path in documents
        }
        record["files"] = sorted(path.name for path in out.glob("*"))
        texts = {n: (out / n).read_text() for n in TEXTS if (out / n).exists()}
        record["texts"] = {n: anywhere(text, folder) for n, text in texts.items()}
        return record


def run(command: str, folder: Path) -> dict[str, Any]:
    """Run a command for a shell; ``python`` and ``shrinkfx`` are those of this tree."""
    python = f'python() {{ {sys.executable} "$@"; }}\n'
    shrinkfx = 'shrinkfx() { python -W ignore -m shrinkfx "$@"; }\n'
    done = subprocess.run(
        ["bash", "-c", python + shrinkfx + command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    out, err = (anywhere(text, folder) for text in (done.stdout, done.stderr))
    words = anywhere(command, folder)
    return {"command": words, "code": done.returncode, "stdout": out, "stderr": err}


def anywhere(text: str, folder: Path) -> str:
    """Replace the paths of this recording and of this tree."""
    return text.replace(str(folder), "FOLDER").replace(str(ROOT), "ROOT")


def read(path: Path) -> dict[str, Any]:
    """Read a JSON object; an empty one if there is no file."""
    if not path.exists():
        return {}
    found: Any = json.loads(path.read_text())
    return found if isinstance(found, dict) else {"": found}


def keys(value: object, prefix: str = "") -> set[str]:
    """Collect the paths of all keys; all items of a list count as one."""
    if isinstance(value, dict):
        pairs = [(f"{prefix}.{key}" if prefix else key, v) for key, v in value.items()]
        return {path for path, _ in pairs}.union(*(keys(v, path) for path, v in pairs))
    if isinstance(value, list):
        return set[str]().union(*(keys(item, f"{prefix}[]") for item in value))
    return set()


if __name__ == "__main__":
    main()
