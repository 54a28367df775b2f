"""Write ``docs/gallery.md``: the bugs of PyTorch in ``repros/``.

``python benchmarks/campaign/gallery.py``. A bug is a folder with a ``bug.json``.
shrinkfx reads its ``title`` and ``issue``; the other keys are for this page: ``fails``
and ``passes`` list versions of PyTorch, ``thread`` is the cause that the thread of the
issue gives, ``agrees`` compares it with shrinkfx's, and ``searched`` is the date of a
search that found no issue.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "gallery.md"

_INTRODUCTION = """\
# Gallery

This page is for readers who want to see what shrinkfx reports. It has {count} repros
of bugs of PyTorch; no fault is planted. To run a repro: `python repros/NAME/repro.py`;
`shrinkfx verify repros` runs them all. *Reduced*: the operators of the input program,
and those of the repro. Most causes are from a later run with `--explain`, which is not
part of the checks and CPU-seconds. Names such as `make.py:22` are lines of the input
program. For a bug with a public issue, the cause is compared with the one that the
thread of the issue gives. The versions are those on which the repro was run.
`benchmarks/campaign/gallery.py` writes this page.

| bug | kind | reduced | checks | CPU-seconds |
|---|---|---|---|---|
"""


def write() -> str:
    """Return the text of the page."""
    bugs = [_read(path.parent) for path in sorted(ROOT.glob("repros/*/bug.json"))]
    rows = [_row(bug) for bug in bugs]
    entries = [_entry(bug) for bug in bugs]
    return "\n".join(
        [_INTRODUCTION.format(count=len(bugs)) + "\n".join(rows), *entries]
    )


def _read(folder: Path) -> dict[str, Any]:
    bug = json.loads((folder / "bug.json").read_text())
    summary = json.loads((folder / "summary.json").read_text())
    return {"folder": folder, **bug, "run": summary}


def _row(bug: dict[str, Any]) -> str:
    run, name = bug["run"], bug["folder"].name
    before, after = run["operators"]["before"], run["operators"]["after"]
    spent = round(sum(run["cpu_seconds"].values()))
    checks = run["checks"]["total"]
    return (
        f"| [{bug['title']}](#{name}) | {run['kind']} | {before} → {after} | {checks} "
        f"| {spent} |"
    )


def _entry(bug: dict[str, Any]) -> str:
    run, name = bug["run"], bug["folder"].name
    lines = ["", f"## {name}", "", f"**{bug['title']}**. {_issue(bug)}".rstrip(), ""]
    lines += ["```python", _forward(bug["folder"] / "repro.py"), "```", ""]
    lines += [f"- **Failure**: {_escape(run['failure'])}"]
    lines += [f"- **Cause**: {_escape(' '.join(run['cause']))}"] if run["cause"] else []
    if "thread" in bug:
        lines += [f"- **In the thread**: {bug['thread']}"]
        lines += [f"- **shrinkfx agrees with the thread**: {bug['agrees']}"]
    fails = bug.get("fails", [run["versions"]["torch"].partition("+")[0]])
    versions = f"- **Fails with** torch {', '.join(fails)}"
    if bug.get("passes"):
        versions += f"; not with {', '.join(bug['passes'])}"
    report = PAGE.with_suffix("") / f"{name}.html"
    page = report.relative_to(PAGE.parent)
    lines += [versions, *([f"- [report.html]({page})"] if report.is_file() else [])]
    return "\n".join(lines)


def _escape(text: str) -> str:
    """Escape what Markdown would interpret, except in code spans."""
    text = re.sub(r"explain/sources/\S+\.cpp", "the generated code", text)
    parts = text.split("`")
    parts[::2] = [
        re.sub(r"([*_])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]
    ]
    return "`".join(parts)


def _issue(bug: dict[str, Any]) -> str:
    if "issue" not in bug:
        searched = bug.get("searched")
        return f"A search on {searched} found no public issue." if searched else ""
    number = bug["issue"].rpartition("/")[2]
    return f"Issue: [pytorch#{number}]({bug['issue']})."


def _forward(path: Path) -> str:
    """Return the modules and inputs of a repro, and the export of dynamic shapes."""
    lines, kept = path.read_text().splitlines(), []
    for node in ast.parse("\n".join(lines)).body:
        text = lines[node.lineno - 1 : node.end_lineno]
        if isinstance(node, ast.With):
            exports = [line.strip() for line in text if "dynamic_shapes" in line]
            kept += exports[:1]
            break
        is_setting = text[0].startswith("os.environ[")
        if not (is_setting or isinstance(node, ast.Import | ast.ImportFrom)):
            kept += [*text, *[""] * (2 if isinstance(node, ast.ClassDef) else 0)]
    return re.sub(r"  # .*", "", "\n".join(kept)).strip()


if __name__ == "__main__":
    PAGE.write_text(write() + "\n")
