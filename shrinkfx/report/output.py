"""The output folder: make it, fill it, and say what is in it."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from shrinkfx.errors import UsageError
from shrinkfx.failure.signature import Signature
from shrinkfx.protocol.descriptions import Printed
from shrinkfx.report.atomic_files import DRAFT, draft_of, publish
from shrinkfx.report.carried import Carried
from shrinkfx.report.record import RunRecord
from shrinkfx.report.repro import write_embedded, write_repro
from shrinkfx.report.tensors import DATA, Data
from shrinkfx.report.written import EMBEDDED, NoSource, Written
from shrinkfx.wording import Flag

INTAKE = "intake"
"""In the output folder: the program, where a run was given no file."""

CAPTURE = "capture"
"""In the output folder: what a script has left that was captured."""

MINIMAL, MINIMAL_AS_SOURCE = "minimal.pt2", "minimal.zip"
"""File names of the reduced program: as ``torch.export.save`` saves it, and as a source
archive."""

_EMBED_BYTES = 256 * 1024
_NAME_BYTES = 200
"""Of a model's name in that of its folder; no file system takes more than 255."""
_FROM_FILE = f'torch.load("{DATA}", weights_only=True)["{{}}"]'


class ReproRunner(Protocol):
    """Whoever can run a script and say whether it failed as it should.

    None says that the run had no answer: something else has ended it.
    """

    def fails(
        self, files: Sequence[Path], target: Signature, *, is_likely: bool = True
    ) -> bool | None:
        """Run it once.

        Args:
            is_likely: if not, what takes less than such a run may tell that it passes.
        """


def output_folder(chosen: Path | None, model: Path) -> Path:
    """Make the folder for a run; the default is the next free number.

    Raises:
        UsageError: it cannot be made, or not be written to.
    """
    name = model.stem.encode()[:_NAME_BYTES].decode(errors="ignore")
    free = (Path("shrinkfx-out") / f"{name}-{n}" for n in itertools.count(1))
    try:
        folder = next(filter(_is_new, free)) if chosen is None else chosen
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink(missing_ok=True)
    except OSError as error:
        where = Flag("--out", str(chosen or error.filename))
        advice = "name a folder that can be written to"
        raise UsageError(where, f": {error.strerror}: {advice}") from error
    return folder


def _is_new(folder: Path) -> bool:
    """Make a folder; False if there is one, of a run that may begin just now."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def remove_if_empty(folder: Path) -> None:
    """Leave no folder behind where a run came to nothing."""
    with contextlib.suppress(OSError):  # it is gone, or somebody's file is in it
        folder.rmdir()


def own_file(out: Path) -> Callable[[Path], Path]:
    """Find files of a run's own folder, which may have moved since they were named.

    Those in a folder of a door are told by its name and theirs, whatever lies at their
    old place now; others only where nothing lies there any more.
    """

    def find(path: Path) -> Path:
        door, there = path.parent.name, out.resolve()
        if door in (INTAKE, CAPTURE) and (there / door / path.name).is_file():
            return there / door / path.name
        is_gone = not path.is_file() and (there / path.name).is_file()
        return there / path.name if is_gone else path

    return find


def minimal_program(folder: Path) -> Path:
    """Return the path of the reduced program."""
    as_source = folder / MINIMAL_AS_SOURCE
    return as_source if as_source.exists() else folder / MINIMAL


def write_smallest_repro(
    folder: Path,
    printed: Printed,
    record: RunRecord,
    choices: Sequence[Carried],
    runner: ReproRunner,
    optional: Sequence[str] = (),
    embedded: Sequence[Carried] | None = None,
    no_source: NoSource | None = None,
) -> Written:
    """Write the simplest script that fails in the same way.

    From simple to sure: values from a seed before exact ones, the definitions
    that the operators reach before whole files, source before the program
    itself. The last one is kept, unproven, if none fails.

    Args:
        printed: the worker's answer to ``WriteCandidate``, run in ``folder``.
        choices: ways to carry the preloads, the smallest first; at least one.
        optional: variables without which it may fail alike.
        embedded: those of the choices that the program itself is tried with, if source
            does not fail; None for all.
        no_source: why source is not tried; None to try it, if there is any.
    """
    written, bare = None, list[bool | None]()
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=folder) as draft:
        path = Path(draft) / "repro.py"
        last = choices if embedded is None else embedded
        program = _Program.of(folder, printed, no_source)
        for attempt in _attempts(path, program, record, choices, last):
            fails = runner.fails(
                attempt.files, record.signature, is_likely=not attempt.carried.bare
            )
            written = replace(attempt, fails=fails)
            if attempt.carried.bare:
                bare.append(fails)
            if fails:
                found = _Form(path, program, written)
                written = found.with_fewest_settings(record, runner, optional)
                break
        assert written is not None
        # Nobody shall find a script there that has not been seen to fail.
        final = folder / path.name
        path.replace(draft_of(final))
        publish(final)
    _drop_unused(folder, written, choices)
    is_sure = bool(bare) and record.failure.rate_after == 1
    fails_without = False if is_sure and set(bare) == {False} else None
    return replace(
        written, files=(final, *written.files[1:]), fails_without_own=fails_without
    )


@dataclass(frozen=True)
class _Program:
    """What a script is written of, saved in a folder; and why not as source, if so."""

    folder: Path
    printed: Printed
    no_source: NoSource | None

    @classmethod
    def of(cls, folder: Path, printed: Printed, no_source: NoSource | None) -> _Program:
        if printed.is_source_archive:
            no_source = None
        elif printed.source is None or printed.unprintable:
            no_source = no_source or NoSource.UNPRINTED
        return cls(folder, printed, no_source)


def write_surest(
    path: Path,
    folder: Path,
    printed: Printed,
    record: RunRecord,
    choice: Carried,
    no_source: NoSource | None = None,
) -> Written:
    """Write the script with exact values: source, or where there is none the program.

    Args:
        path: where it is written.
        folder: with all that lies beside it; see ``write_smallest_repro``.
    """
    program = _Program.of(folder, printed, no_source)
    last = [choice] if program.no_source else []
    *_, surest = _attempts(path, program, record, [choice], last)
    return surest


def _attempts(
    path: Path,
    written_of: _Program,
    record: RunRecord,
    choices: Sequence[Carried],
    embedded: Sequence[Carried],
) -> Iterator[Written]:
    folder, printed = written_of.folder, written_of.printed
    seen, settings = set(), record.conditions.environment
    source = printed.source if written_of.no_source is None else None
    for parts, data in itertools.product(choices, Data):
        if source is None:
            break
        script = write_repro(
            source,
            record,
            parts.definitions,
            data,
            unpacking=parts.unpacking,
            remarks=parts.remarks,
        )
        if script.text in seen:
            continue
        seen.add(script.text)
        path.write_text(script.text, encoding="utf-8")
        values = [folder / DATA] if script.needs_data else []
        beside = [*values, *_copies(parts, folder)]
        yield Written((path, *beside), f"source, {data}", False, parts, settings)
    for parts in () if printed.is_source_archive else embedded:
        program = minimal_program(folder)
        small = program.stat().st_size <= _EMBED_BYTES
        carried = program.read_bytes() if small else program.name
        values = [folder / DATA] if printed.two_sets else []
        names = ("passing", "failing") if record.conditions.passes else ("failing",)
        runs = {name: _FROM_FILE.format(name) for name in names}
        if not values:
            runs = {"failing": "exported.example_inputs[0]"}
        text = write_embedded(
            carried,
            record,
            parts.definitions,
            runs,
            written_of.no_source or NoSource.PASSES,
            unpacking=parts.unpacking,
            remarks=parts.remarks,
        )
        path.write_text(text, encoding="utf-8")
        beside = [*([] if small else [program]), *values, *_copies(parts, folder)]
        yield Written((path, *beside), EMBEDDED, False, parts, settings)


@dataclass(frozen=True)
class _Form:
    """A script that fails, to be written again in the same way."""

    path: Path
    program: _Program
    written: Written

    def with_fewest_settings(
        self, record: RunRecord, runner: ReproRunner, optional: Sequence[str]
    ) -> Written:
        """Leave out what was set where it was made and changes nothing here.

        All at once, since mostly nothing is needed; else one after the other.
        """
        conditions = record.conditions
        names = [name for name in optional if name in conditions.environment]
        best, text, gone = self.written, self._text(), set[str]()
        tries = [names] if len(names) == 1 else [names, *([name] for name in names)]
        for some in tries if names else ():
            rest = {
                name: value
                for name, value in conditions.environment.items()
                if name not in gone.union(some)
            }
            fewer = replace(conditions, environment=rest)
            trial = self._again(replace(record, conditions=fewer))
            if runner.fails(trial.files, record.signature):
                gone.update(some)
                best, text = replace(trial, fails=True), self._text()
            if gone == set(names):
                break
        self.path.write_text(text, encoding="utf-8")
        return replace(best, not_needed=tuple(sorted(gone)))

    def _text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def _again(self, record: RunRecord) -> Written:
        carried = [self.written.carried]
        attempts = _attempts(self.path, self.program, record, carried, carried)
        return next(each for each in attempts if each.how == self.written.how)


def _copies(parts: Carried, folder: Path) -> list[Path]:
    """Put what lies beside a script there."""
    for name, file in parts.files.items():
        if file.resolve() != (folder / name).resolve():
            shutil.copy(file, folder / name)
    return [folder / name for name in parts.files]


def _drop_unused(folder: Path, written: Written, choices: Sequence[Carried]) -> None:
    """Leave nothing beside a script that only another one would have needed."""
    kept = {file.name for file in written.files}
    copied = {name: file for parts in choices for name, file in parts.files.items()}
    mine = {n for n, f in copied.items() if f.resolve() != (folder / n).resolve()}
    for name in {DATA, *mine} - kept:
        (folder / name).unlink(missing_ok=True)
