"""Test the parts of the environment, each one after the parts that it needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from shrinkfx.check.client.orphans import kill_marked
from shrinkfx.cli.doctor import parts, probes
from shrinkfx.cli.doctor.parts import Part
from shrinkfx.errors import (
    SEE_DOCTOR,
    LoadError,
    ShrinkfxError,
    StorageError,
    WorkerError,
)
from shrinkfx.protocol.answers import Row
from shrinkfx.system import scratch

_FIRST = parts.TORCH.name, parts.COMPILER.name
_NEEDS = (*_FIRST, parts.WORKER.name)
ESSENTIAL = (*_NEEDS, parts.AOTI.name, parts.VERIFICATION.name)
"""Parts that every run of a CPU program needs."""


@dataclass(frozen=True)
class Trial:
    """How a part is tested.

    Attributes:
        needs: names of parts that must work before the part is tested; each one comes
            after the parts that it needs itself.
        others: parts that the same probe tests as well.
    """

    part: Part
    probe: Callable[[], list[Row]]
    needs: Sequence[str] = ()
    others: Sequence[Part] = ()

    def rows(self, working: Collection[str]) -> list[Row]:
        """Test the part, unless it needs a part that does not work."""
        failing = [name for name in self.needs if name not in working]
        needed = next(iter(failing), self.part.name)
        rows = [self.part.not_tried(needed)] if failing else self._run_probe()
        tested = {row.part for row in rows}
        untested = [each for each in self.others if each.name not in tested]
        return [*rows, *(each.not_tried(needed) for each in untested)]

    def _run_probe(self) -> list[Row]:
        try:
            return self.probe()
        except Exception as error:  # noqa: BLE001 - any exception makes a row
            return [_make_broken_row(self.part, error)]


def examine() -> Iterator[Row]:
    """Test each part, and yield its row as soon as all earlier rows are known."""
    yield from probes.list_versions()
    working: set[str] = set()
    with scratch.make_scratch_folder("doctor") as folder:
        for trials in _stages(Path(folder) / "program.pt2"):
            for row in _run_together(trials, frozenset(working)):
                if row.works:
                    working.add(row.part)
                yield row


def can_reduce(rows: Sequence[Row]) -> bool:
    """Tell whether CPU programs can be reduced, and their repros verified."""
    working = {row.part for row in rows if row.works}
    return working >= {*ESSENTIAL}


def _stages(program: Path) -> Iterator[Sequence[Trial]]:
    """Yield groups of trials; each group runs after the parts that it may need.

    Args:
        program: path at which the worker saves the program.
    """

    def of(probe: Callable[[Path], list[Row]]) -> Callable[[], list[Row]]:
        return partial(probe, program)

    yield (
        Trial(parts.TORCH, probes.probe_torch),
        Trial(parts.COMPILER, probes.probe_compiler),
        Trial(parts.PAGE, probes.probe_report_page),
    )
    others = parts.GUARD_PAGES, *parts.INSPECTED
    yield (Trial(parts.WORKER, of(probes.probe_worker), _FIRST, others),)
    for_cuda = (*_NEEDS, "Triton", "ptxas")
    yield (
        Trial(parts.AOTI, of(probes.probe_aotinductor), _NEEDS, [parts.FAST_BUILD]),
        Trial(parts.VERIFICATION, of(probes.probe_verification), _NEEDS),
        Trial(parts.INTERPRETER, of(probes.probe_interpreter), for_cuda),
        Trial(parts.ON_GPU, of(probes.probe_gpu), (*for_cuda, "GPU")),
    )


_MAX_PARALLEL = 2


def _run_together(trials: Sequence[Trial], working: Collection[str]) -> Iterator[Row]:
    """Run the trials of a group in parallel, and yield their rows in order."""
    with ThreadPoolExecutor(_MAX_PARALLEL) as pool:
        futures = [pool.submit(trial.rows, working) for trial in trials]
        try:
            for future in futures:
                yield from future.result()
        finally:  # after Ctrl-C, kill the running probes: the pool waits for their end
            while not all(future.done() or future.cancel() for future in futures):
                kill_marked(f"{scratch.root().name}:")
                wait(futures, timeout=_PAUSE_S)


_PAUSE_S = 0.2


def _make_broken_row(part: Part, error: Exception) -> Row:
    """Make the row of a part whose probe raised, with the advice of the error."""
    match error:
        case LoadError() | StorageError():
            subject = str(error.subject)
            prefix = "" if subject == part.name else f"{subject}: "
            row = part.broken(f"{prefix}{error.reason}")
            advice = str(error.advice).replace(SEE_DOCTOR, "").strip()
            return replace(row, remedy=advice or row.remedy)
        case WorkerError() if error.log.strip():
            *_, last = error.log.strip().splitlines()
            return part.broken(f"{error.reason}; its last line: {last}")
        case ShrinkfxError() | probes.ProbeFailed():
            return part.broken(str(error))
    return part.broken(f"{type(error).__name__}: {error}")
