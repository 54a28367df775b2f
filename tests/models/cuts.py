"""Cut a real model at random, and hold each cut against the original's values.

    python cuts.py NAME static|dynamic CUTS

Its answer is a line of JSON. The library makes the program in a process of its own:
shrinkfx reads it without, as it does a file of somebody else's.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS / "worker"), str(_TESTS), str(_TESTS.parent)]

import torch  # noqa: E402
from architectures import LIBRARIES, MODELS, PRELOADS  # noqa: E402
from samples import Sample  # noqa: E402
from support.reductions import Loaded, check_layouts, check_values, real  # noqa: E402

from shrinkfx.program.apply import apply  # noqa: E402
from shrinkfx.program.candidate import Candidate, Outputs  # noqa: E402
from shrinkfx.program.edits import Drop  # noqa: E402
from shrinkfx.protocol.requests import Setup  # noqa: E402
from shrinkfx.worker import tasks  # noqa: E402, F401 - what a worker imports
from shrinkfx.worker.eager.intermediates import SEED, EagerValues, RunRecord, run_eager  # noqa: E402
from shrinkfx.worker.graph.describe import describe  # noqa: E402
from shrinkfx.worker.graph.rebuild import CannotRebuild, RebuiltCandidate  # noqa: E402
from shrinkfx.worker.loading.load import load, preload  # noqa: E402
from shrinkfx.worker.printing.module import export_source  # noqa: E402

LONGEST_SOURCE = 50
"""Operators up to which a run of shrinkfx asks for source: ``search/staged.py``."""


@dataclass
class Tally:
    """What became of a model's cuts, and what that cost.

    Attributes:
        refused: why cuts are no programs, each with how many there were.
        missing: why the library cannot make the model, or ''.
        export_s: CPU-seconds of the library's process, its import included.
        cuts_s: CPU-seconds of loading, describing and cutting.
    """

    operators: int = 0
    cuts: int = 0
    printed: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    missing: str = ""
    export_s: float = 0.0
    cuts_s: float = 0.0
    peak_rss_bytes: int = 0


def main(name: str, shapes: str, cuts: int) -> Tally:
    torch.set_num_threads(1)
    tally = Tally(cuts=cuts)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tally.missing = _make(name, folder, dynamic=shapes == "dynamic")
        if not tally.missing:
            preload(PRELOADS.get(name, ()))
            cut_often(read(folder), tally, Random(0))
    tally.export_s = _seconds(resource.RUSAGE_CHILDREN)
    tally.cuts_s = _seconds(resource.RUSAGE_SELF)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tally.peak_rss_bytes = peak << 10
    return tally


def _seconds(who: int) -> float:
    usage = resource.getrusage(who)
    return round(usage.ru_utime + usage.ru_stime, 1)


# --- the library's part


def _make(name: str, folder: Path, *, dynamic: bool) -> str:
    """Export and save in a child; say what library it lacks, or ''."""
    answer = folder / "missing"
    child = os.fork()
    if not child:
        status = 1
        try:
            answer.write_text(_lacking(name))
            if not answer.read_text():
                torch.manual_seed(0)
                _save(MODELS[name](), folder, dynamic=dynamic)
            status = 0
        finally:
            if status:
                traceback.print_exc()
                sys.stderr.flush()
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    assert ended == 0, f"{name} could not be exported: its traceback is above"
    return answer.read_text()


def _lacking(name: str) -> str:
    """Import what a model is made with, and say why that cannot be done."""
    for library in LIBRARIES.get(name, ("transformers",)):
        try:
            importlib.import_module(library)
        except ImportError as error:
            return f"{error}: pip install -e '.[models]', or '.[vision]'"
        except RuntimeError as error:  # a torchvision of another build of torch
            return f"{library} does not import: {error}"
    return ""


def _save(sample: Sample, folder: Path, *, dynamic: bool) -> None:
    """Save; what is dynamic is one larger in the failing inputs."""
    torch.export.save(sample.export(dynamic=dynamic), folder / "model.pt2")
    if dynamic:
        larger = {
            name: _grown(value, sample.dynamic.get(name, {}))
            for name, value in sample.arguments.items()
        }
        torch.save({"kwargs": larger}, folder / "inputs.pt")


def _grown(value: Any, dims: Any) -> Any:
    """Repeat the first of each dynamic dim: tokens stay tokens."""
    for dim in dims:
        value = torch.cat([value, value.narrow(dim, 0, 1)], dim)
    return value


# --- shrinkfx's part


def read(folder: Path) -> Loaded:
    inputs = folder / "inputs.pt"
    given = str(inputs) if inputs.exists() else None
    program = load(Setup(str(folder), model=str(folder / "model.pt2"), inputs=given))
    values = EagerValues(folder / "values", program)
    recorded = values.record(program)
    assert recorded == RunRecord(), recorded
    return Loaded(program, describe(program, ""), values)


def cut_often(loaded: Loaded, tally: Tally, random: Random) -> None:
    """Check the whole program and so many random cuts of it."""
    whole = Candidate.from_skeleton(loaded.skeleton)
    tally.operators = whole.cost[0]
    _check(loaded, whole, tally)
    assert not tally.refused, tally.refused
    for candidate in _drawn(whole, tally.cuts, random):
        _check(loaded, candidate, tally)


def _drawn(whole: Candidate, cuts: int, random: Random) -> Iterator[Candidate]:
    """Draw windows of any length, some with gaps: halves, layers, lone operators."""
    operators = whole.operators
    for _ in range(cuts):
        length = round(len(operators) ** random.random())
        first = random.randrange(len(operators) - length + 1)
        window = operators[first : first + length]
        density = random.choice((1.0, 0.9, 0.5))
        kept = {n for n in window if random.random() < density}
        kept.add(random.choice(window))
        outputs = random.choice(tuple(Outputs))
        yield apply(whole, [Drop(whole.keep - kept)]).returning(outputs)


def _check(loaded: Loaded, candidate: Candidate, tally: Tally) -> None:
    try:
        built = real(loaded, candidate)
    except CannotRebuild as error:
        tally.refused[str(error)] = tally.refused.get(str(error), 0) + 1
        return
    built.exported.validate()  # type: ignore[no-untyped-call]
    check_values(loaded, candidate, built)
    check_layouts(built)
    if candidate.cost[0] <= LONGEST_SOURCE:
        _check_source(built)
        tally.printed += 1


def _check_source(built: RebuiltCandidate) -> None:
    printed, _ = export_source(built)
    results = (
        run_eager(exported, built.failing, seed=SEED, memory=0)
        for exported in (printed, built.exported)
    )
    torch.testing.assert_close(*results, equal_nan=True)


if __name__ == "__main__":
    print(json.dumps(asdict(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
