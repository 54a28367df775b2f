"""The programs of the contract: how to make each, and how to reduce it.

All cases of ``repros/`` that fail with this PyTorch, the tutorial, and three
architectures with a planted fault.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE.parent)]

from repros.expected import (  # noqa: E402
    arguments,
    fails_with,
    preloading,
    read_expected,
)

MODELS = {"bert": "erf", "gpt2": "tanh", "llama": "rsqrt"}
"""Architectures of ``tests/models/``, each with the operator that does not compile."""


@dataclass(frozen=True)
class Program:
    """A program that fails.

    Attributes:
        commands: for a shell, in a folder of their own; the last of them may write the
            folder ``out``.
        files: in that folder before, by name.
    """

    name: str
    commands: Sequence[str]
    files: dict[str, str] = field(default_factory=dict)


def programs() -> Iterator[Program]:
    """Yield all programs that can be made here."""
    for path in sorted((ROOT / "repros").glob("*/expected.toml")):
        case = path.parent
        expected = read_expected(case)
        needs = expected.get("needs", "")
        is_here = not needs or importlib.util.find_spec(needs) is not None
        if is_here and fails_with(expected, importlib.metadata.version("torch")):
            yield _of_repros(case)
    yield _tutorial()
    for model, operator in MODELS.items():
        plant = f"--env PLANTED={operator} --preload {HERE / 'planted.py'}"
        reduce = f"shrinkfx model.pt2 --until compile-error {plant} --out out"
        make = shlex.join(["python", str(HERE / "model.py"), model, "model.pt2"])
        yield Program(f"model_{model}", [make, reduce])


def _of_repros(case: Path) -> Program:
    expected = read_expected(case)
    words = ["shrinkfx", "model.pt2", "--out", "out"]
    if case.name.startswith("sweep_"):
        words += ["--dynamic-sweep", "--seed", "7", *preloading(case, expected)]
    else:
        words += arguments(case, expected)
    if "run_args" in (case / "make.py").read_text():
        words += ["--inputs", "model.inputs.pt"]
    export = ["python", "-W", "ignore", str(ROOT / "repros" / "export.py")]
    make = shlex.join([*export, case.name, "model.pt2"])
    return Program(case.name, [make, shlex.join(words)])


def _tutorial() -> Program:
    """Read the files and commands of ``docs/tutorial.md``."""
    text = (ROOT / "docs" / "tutorial.md").read_text()
    files = dict(re.findall(r"`(\w+\.py)`:\s*```python\n(.*?)^```$", text, re.M | re.S))
    return Program("tutorial", re.findall(r"^\$ (.*)$", text, re.M), files)
