"""Write the smallest repro into the output folder."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from shrinkfx.failure.signature import Signature
from shrinkfx.preloads.preload_bundle import PreloadBundle
from shrinkfx.protocol.answers import Printed
from shrinkfx.report.record import EMBEDDED, NoSource, ReproFiles, RunRecord
from shrinkfx.report.repro import DATA, EXAMPLE, Data, write_embedded, write_repro
from shrinkfx.system.folders import DRAFT, draft_of, minimal_program, publish_draft

_Value = TypeVar("_Value")

_EMBED_BYTES = 256 * 1024
_FROM_FILE = f'torch.load("{DATA}", weights_only=True)["{{}}"]'


class ReproRunner(Protocol):
    """Runs a script and returns whether it failed in the expected way.

    None means that the run gave no result because something else ended it.
    """

    def fails(
        self, files: Sequence[Path], target: Signature, *, is_likely: bool = True
    ) -> bool | None:
        """Run the script once.

        Args:
            is_likely: False allows a cheaper test first, which may already show that
                the script passes.
        """


def write_smallest_repro(
    folder: Path,
    printed: Printed,
    record: RunRecord,
    choices: Sequence[PreloadBundle],
    runner: ReproRunner,
    optional: Sequence[str] = (),
    embedded: Sequence[PreloadBundle] | None = None,
    no_source: NoSource | None = None,
) -> ReproFiles:
    """Write the simplest script that fails in the same way.

    The attempts go from simple to safe: seeded values before exact ones, the
    definitions that the operators need before whole files, source before the embedded
    program. If none fails, the last attempt is kept unverified.

    Args:
        printed: the worker's reply to ``WriteCandidate``, executed in ``folder``.
        choices: preload bundles, the smallest first; at least one.
        optional: environment variables and options of Inductor that the failure may
            not need.
        embedded: the bundles to try with the embedded program if no source form fails;
            None for all of ``choices``.
        no_source: why the source form is not tried; None to try it if the program was
            printed.
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
        # Publish last, so that a reader never finds a script that was not tested.
        final = folder / path.name
        path.replace(draft_of(final))
        publish_draft(final)
    _drop_unused(folder, written, choices)
    is_sure = bool(bare) and record.failure.rate_after == 1
    fails_without = False if is_sure and set(bare) == {False} else None
    return replace(
        written, files=(final, *written.files[1:]), fails_without_own=fails_without
    )


@dataclass(frozen=True)
class _Program:
    """The program that a script is written from, and why its source is not used."""

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
    choice: PreloadBundle,
    no_source: NoSource | None = None,
) -> ReproFiles:
    """Write the script with exact values: as source, or with the embedded program.

    Args:
        path: the file to write.
        folder: the folder with the script's other files; see ``write_smallest_repro``.
    """
    program = _Program.of(folder, printed, no_source)
    last = [choice] if program.no_source else []
    *_, surest = _attempts(path, program, record, [choice], last)
    return surest


def _attempts(
    path: Path,
    written_of: _Program,
    record: RunRecord,
    choices: Sequence[PreloadBundle],
    embedded: Sequence[PreloadBundle],
) -> Iterator[ReproFiles]:
    """Write one script form after another to ``path``, and yield a record of each."""
    folder, printed = written_of.folder, written_of.printed
    seen, conditions = set(), record.conditions
    settings = conditions.environment, conditions.inductor
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
            remarks=parts.header_remarks,
        )
        if script.text in seen:
            continue
        seen.add(script.text)
        path.write_text(script.text, encoding="utf-8")
        values = [folder / DATA] if script.needs_data else []
        extra = [*values, *_copies(parts, folder)]
        yield ReproFiles((path, *extra), f"source, {data}", False, parts, *settings)
    for parts in () if printed.is_source_archive else embedded:
        program = minimal_program(folder)
        small = program.stat().st_size <= _EMBED_BYTES
        carried = program.read_bytes() if small else program.name
        values = [folder / DATA] if printed.two_sets else []
        names = ("passing", "failing") if record.conditions.passes else ("failing",)
        runs = {name: _FROM_FILE.format(name) for name in names}
        if not values:
            runs = {"failing": EXAMPLE}
        text = write_embedded(
            carried,
            record,
            parts.definitions,
            runs,
            written_of.no_source or NoSource.PASSES,
            None if printed.unprintable else printed.source,
            unpacking=parts.unpacking,
            remarks=parts.header_remarks,
        )
        path.write_text(text, encoding="utf-8")
        extra = [*([] if small else [program]), *values, *_copies(parts, folder)]
        yield ReproFiles((path, *extra), EMBEDDED, False, parts, *settings)


@dataclass(frozen=True)
class _Form:
    """A script that fails, and what is needed to write it again in the same form."""

    path: Path
    program: _Program
    written: ReproFiles

    def with_fewest_settings(
        self, record: RunRecord, runner: ReproRunner, optional: Sequence[str]
    ) -> ReproFiles:
        """Remove environment variables and options that the failure does not need.

        All variables are removed at once, because usually none is needed, and then all
        options; if that passes, one at a time.
        """
        conditions = record.conditions
        form, text, removed = self.written, self._text(), set[str]()
        for known in (conditions.environment, conditions.inductor):
            names = [name for name in optional if name in known]
            tries = [names] if len(names) == 1 else [names, *([name] for name in names)]
            for some in tries if names else ():
                dropped = removed.union(some)
                fewer = replace(
                    conditions,
                    environment=_without(conditions.environment, dropped),
                    inductor=_without(conditions.inductor, dropped),
                )
                trial = self._again(replace(record, conditions=fewer))
                if runner.fails(trial.files, record.signature):
                    removed.update(some)
                    form, text = replace(trial, fails=True), self._text()
                if removed.issuperset(names):
                    break
        self.path.write_text(text, encoding="utf-8")
        variables = removed & conditions.environment.keys()
        return replace(form, not_needed=tuple(sorted(variables)))

    def _text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def _again(self, record: RunRecord) -> ReproFiles:
        carried = [self.written.carried]
        attempts = _attempts(self.path, self.program, record, carried, carried)
        return next(each for each in attempts if each.how == self.written.how)


def _without(settings: Mapping[str, _Value], names: Set[str]) -> dict[str, _Value]:
    return {name: value for name, value in settings.items() if name not in names}


def _copies(parts: PreloadBundle, folder: Path) -> list[Path]:
    """Copy the bundle's files next to the script, and return their paths."""
    for name, file in parts.files.items():
        if file.resolve() != (folder / name).resolve():
            shutil.copy(file, folder / name)
    return [folder / name for name in parts.files]


def _drop_unused(
    folder: Path, written: ReproFiles, choices: Sequence[PreloadBundle]
) -> None:
    """Delete files next to the script that only other forms needed."""
    needed = {file.name for file in written.files}
    copied = {name: file for parts in choices for name, file in parts.files.items()}
    mine = {n for n, f in copied.items() if f.resolve() != (folder / n).resolve()}
    for name in {DATA, *mine} - needed:
        (folder / name).unlink(missing_ok=True)
