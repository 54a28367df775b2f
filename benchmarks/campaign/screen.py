"""Compile many programs with AOTInductor, and keep those that may fail.

Each program is made, compiled and compared with eager on the CPU, in a process of its
own. The programs that do not compile, crash, or compute other values than eager are in
``FOLDER/failing``, for ``shrinkfx triage FOLDER/failing``; ``FOLDER/tried-0.jsonl`` has
a line for each program. A second call continues where the first one ended.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._inductor import aoti_compile_and_package, aoti_load_package, config
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from shrinkfx.worker.aoti.fast_build import fast_build, with_plain_wrapper

LIMIT_S = 200
LOOSENESS = 10
"""Factor on PyTorch's tolerances; shrinkfx judges what differs by more."""


@dataclass(frozen=True)
class Trial:
    """A program, a call of it, and what eager computes in that call.

    Attributes:
        calls: the number of calls of an operator; 1 for a model.
        by_largest: whether the tolerance of each value is relative to the largest value
            of its tensor, as in a model, where each value is a sum of such values.
    """

    program: ExportedProgram
    expected: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    calls: int = 1
    by_largest: bool = False


class NotTried(Exception):
    """There is no program to try."""


Maker = Callable[[], Trial]


def screen(arguments: argparse.Namespace, makers: Iterable[tuple[str, Maker]]) -> None:
    """Try the programs of ``makers``, which have names, in the order given."""
    warnings.simplefilter("ignore")
    config.compile_threads = 1
    config.fx_graph_cache = False
    folder: Path = arguments.folder
    _warm_up(folder / "warm-up")
    index, count = map(int, arguments.part.split("/"))
    failing, scratch = folder / "failing", folder / f"part-{index}"
    failing.mkdir(parents=True, exist_ok=True)
    scratch.mkdir(exist_ok=True)
    lines = folder / f"tried-{index}.jsonl"
    done = set()
    if lines.exists():
        done = {json.loads(line)["name"] for line in lines.read_text().splitlines()}
    tally: Counter[str] = Counter()
    for name, make in list(makers)[index::count]:
        if name in done or (arguments.only and name not in arguments.only):
            continue
        path = scratch / f"{name}.pt2"
        attempt = functools.partial(_try, make, path)
        report = {"name": name, **run_in_a_process(attempt, scratch)}
        if report["outcome"] == "not tried":
            path.unlink(missing_ok=True)  # it may be incomplete
        if path.exists():
            path.rename(failing / path.name)
        tally[report["outcome"]] += 1
        with lines.open("a") as file:
            print(json.dumps(report), file=file)
        print(json.dumps(report), flush=True)
    print(dict(tally), file=sys.stderr)


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the options that ``screen`` needs."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("folder", type=Path)
    options.add_argument("--part", default="0/1", help="I/N: each N-th from the I-th")
    options.add_argument("--only", nargs="+", help="names of programs")
    return options


def shorten(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:400]


def _try(make: Maker, path: Path) -> dict[str, Any]:
    """Return how a program fails, and save it if it does."""
    trial = make()
    torch.export.save(trial.program, path)
    report = {"calls": trial.calls, "outcome": "passes"}
    try:
        package = _build(trial.program)
    except Exception as error:  # noqa: BLE001 - a compile error is a result
        return report | {"outcome": "does not compile", "error": shorten(error)}
    try:
        compiled = aoti_load_package(package)
        args, kwargs = deepcopy((trial.args, trial.kwargs))
        _compare(compiled(*args, **kwargs), trial)
    except AssertionError as error:
        return report | {"outcome": "other values", "error": shorten(error)}
    except Exception as error:  # noqa: BLE001
        return report | {"outcome": "raises", "error": shorten(error)}
    path.unlink()
    return report


def _compare(seen: Any, trial: Trial) -> None:
    leaves, wanted = pytree.tree_leaves(seen), pytree.tree_leaves(trial.expected)
    assert len(leaves) == len(wanted), f"{len(leaves)} results, not {len(wanted)}"
    for one, two in zip(leaves, wanted, strict=True):
        if not isinstance(two, Tensor):
            assert one == two, f"{one}, not {two}"
            continue
        limits = torch.testing._comparison.default_tolerances(two)
        rtol, atol = (LOOSENESS * limit for limit in limits)
        if trial.by_largest and two.is_floating_point() and two.numel():
            atol = rtol * float(two.abs().max())
        torch.testing.assert_close(one, two, equal_nan=True, rtol=rtol, atol=atol)


def run_in_a_process(
    attempt: Callable[[], dict[str, Any]], scratch: Path
) -> dict[str, Any]:
    """Return what a function reports, from a fork, which may crash or hang.

    Args:
        scratch: a folder for the report, and for what the function prints.
    """
    out = scratch / "report.json"
    out.unlink(missing_ok=True)
    began = time.monotonic()
    if (child := os.fork()) == 0:
        os.setsid()
        with (scratch / "output.txt").open("w") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            try:
                report = attempt()
            except NotTried as error:
                report = {"outcome": str(error)}
            except Exception as error:  # noqa: BLE001
                report = {"outcome": "not tried", "error": shorten(error)}
            out.write_text(json.dumps(report))
            os._exit(0)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.05)
        if time.monotonic() - began > LIMIT_S:
            os.killpg(child, signal.SIGKILL)
    seconds = time.monotonic() - began
    if out.exists():
        report = json.loads(out.read_text())
    else:
        report = {"outcome": "crashes" if seconds < LIMIT_S else "hangs"}
    return {"seconds": round(seconds, 1), **report}


def _build(program: ExportedProgram) -> str:
    """Compile a program with shrinkfx's fast build."""
    with tempfile.TemporaryDirectory() as folder, fast_build(Path(folder), None):
        return str(
            aoti_compile_and_package(
                program, inductor_configs=dict(with_plain_wrapper({}))
            )
        )


def _warm_up(folder: Path) -> None:
    """Compile once, so that the forks find compiled headers and imported modules."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.resolve())
    aoti_load_package(_build(torch.export.export(nn.ReLU(), (torch.ones(2),))))
