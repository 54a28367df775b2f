"""In which order the parts are tried, and what becomes of those that need others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.check.client.orphans import kill_marked
from shrinkfx.doctor import parts, probes
from shrinkfx.doctor.parts import Part
from shrinkfx.errors import (
    SEE_DOCTOR,
    LoadError,
    ShrinkfxError,
    StorageError,
    WorkerError,
)
from shrinkfx.protocol.descriptions import Row

ESSENTIAL = (parts.AOTI.name, parts.VERIFICATION.name)
"""Parts without which no run comes to its end."""


@dataclass(frozen=True)
class Trial:
    """How a part is tried.

    Attributes:
        needs: names of parts without which it is not tried.
        others: parts that its probe tries as well.
    """

    part: Part
    probe: Callable[[], list[Row]]
    needs: Sequence[str] = ()
    others: Sequence[Part] = ()

    def rows(self, working: Collection[str]) -> list[Row]:
        """Try the part, unless it needs one that does not work."""
        rows = self._tried(working)
        told = {row.part for row in rows}
        untold = [each for each in self.others if each.name not in told]
        return [*rows, *(each.not_tried(self.part.name) for each in untold)]

    def _tried(self, working: Collection[str]) -> list[Row]:
        lacking = [name for name in self.needs if name not in working]
        if lacking:
            return [self.part.not_tried(lacking[0])]
        try:
            return self.probe()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            return [_broken(self.part, error)]


def examine() -> Iterator[Row]:
    """Try each part, and yield its row as soon as those above it are known."""
    yield from probes.versions()
    working: set[str] = set()
    with scratch.folder("doctor") as folder:
        for trials in _stages(Path(folder) / "program.pt2"):
            for row in _together(trials, frozenset(working)):
                if row.works:
                    working.add(row.part)
                yield row


def works(rows: Sequence[Row]) -> bool:
    """Tell whether CPU programs can be reduced, and their repros verified."""
    working = {row.part for row in rows if row.works}
    return working >= {*ESSENTIAL}


def _stages(program: Path) -> Iterator[Sequence[Trial]]:
    """Yield what is tried side by side, after all that it may need.

    Args:
        program: where the program lies that is compiled.
    """

    def of(probe: Callable[[Path], list[Row]]) -> Callable[[], list[Row]]:
        return partial(probe, program)

    yield (
        Trial(parts.TORCH, probes.torch),
        Trial(parts.COMPILER, probes.compiler),
        Trial(parts.PAGE, probes.page),
        Trial(parts.TLPARSE, probes.tlparse),
    )
    first = parts.TORCH.name, parts.COMPILER.name
    yield (Trial(parts.WORKER, of(probes.worker), first, [parts.GUARD_PAGES]),)
    needs = (parts.WORKER.name,)
    for_cuda = (*needs, "Triton", "ptxas")
    yield (
        Trial(parts.AOTI, of(probes.aotinductor), needs, [parts.FAST_BUILD]),
        Trial(parts.VERIFICATION, of(probes.verification), needs),
        Trial(parts.INTERPRETER, of(probes.interpreter), for_cuda),
        Trial(parts.ON_GPU, of(probes.on_gpu), (*for_cuda, "GPU")),
    )


_AT_ONCE = 2


def _together(trials: Sequence[Trial], working: Collection[str]) -> Iterator[Row]:
    """Try some parts side by side, and yield their rows in order."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        tried = [pool.submit(trial.rows, working) for trial in trials]
        try:
            for future in tried:
                yield from future.result()
        finally:  # Ctrl-C ends what still runs, since the pool waits for it
            while not all(future.done() or future.cancel() for future in tried):
                kill_marked(f"{scratch.root().name}:")
                wait(tried, timeout=_PAUSE_S)


_PAUSE_S = 0.2


def _broken(part: Part, error: Exception) -> Row:
    """Make a row of what a probe has raised, with its own advice if it has any."""
    match error:
        case LoadError() | StorageError():
            subject = str(error.subject)
            said = "" if subject == part.name else f"{subject}: "
            row = part.broken(f"{said}{error.reason}")
            advice = str(error.advice).replace(SEE_DOCTOR, "").strip()
            return replace(row, remedy=advice or row.remedy)
        case WorkerError() if error.log.strip():
            *_, last = error.log.strip().splitlines()
            return part.broken(f"{error.reason}; its last line: {last}")
        case ShrinkfxError() | probes.Failed():
            return part.broken(str(error))
    return part.broken(f"{type(error).__name__}: {error}")
