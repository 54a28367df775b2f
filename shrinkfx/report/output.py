"""The output folder: make it, fill it, and say what is in it."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from shrinkfx.errors import UsageError
from shrinkfx.failure.signature import Signature
from shrinkfx.report.definitions import Definitions, definitions, whole_file
from shrinkfx.report.files import DRAFT, draft_of, publish
from shrinkfx.report.header import About
from shrinkfx.report.repro import DATA, Data, write_embedded, write_repro

_EMBED_BYTES = 256 * 1024
_FROM_FILE = f'torch.load("{DATA}", weights_only=True)["{{}}"]'


class Runner(Protocol):
    """Whoever can run a script and say whether it failed as it should."""

    def fails(self, files: Sequence[Path], target: Signature) -> bool: ...


@dataclass(frozen=True)
class Preload:
    """Where custom operators come from.

    Attributes:
        name: as given: a file, or the name of a module.
        file: the Python file whose definitions may be embedded, or None.
    """

    name: str
    file: Path | None = None

    @property
    def is_library(self) -> bool:
        return self.name.endswith(".so")


@dataclass(frozen=True)
class Written:
    """A repro and all that must lie beside it, the script first.

    Attributes:
        fails: it was run once, and failed as it should.
    """

    files: tuple[Path, ...]
    how: str
    fails: bool = False


def output_folder(chosen: Path | None, model: Path) -> Path:
    """Make the folder for a run; the default is the next free number.

    Raises:
        UsageError: it cannot be made, or not be written to.
    """
    free = (Path("shrinkfx-out") / f"{model.stem}-{n}" for n in itertools.count(1))
    try:
        folder = next(filter(_is_new, free)) if chosen is None else chosen
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink(missing_ok=True)
    except OSError as error:
        reason = f"--out {chosen or error.filename}: {error.strerror}"
        raise UsageError(f"{reason}: name a folder that can be written to") from error
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


def write_smallest_repro(
    folder: Path,
    printed: Mapping[str, Any],
    about: About,
    preloads: Sequence[Preload],
    runner: Runner,
) -> Written:
    """Write the simplest script that fails in the same way.

    From simple to sure: values from a seed before exact ones, the definitions
    that the operators reach before whole files, source before the program
    itself. The last one is kept, unproven, if none fails.

    Args:
        printed: the worker's answer to ``Task.WRITE``, run in ``folder``.
    """
    written = None
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=folder) as draft:
        path = Path(draft) / "repro.py"
        for written in _attempts(path, folder, printed, about, preloads):
            if runner.fails(written.files, about.signature):
                written = replace(written, fails=True)
                break
        assert written is not None
        # Nobody shall find a script there that has not been seen to fail.
        final = folder / path.name
        path.replace(draft_of(final))
        publish(final)
    _drop_unused(folder, written)
    return replace(written, files=(final, *written.files[1:]))


def _attempts(
    path: Path,
    folder: Path,
    printed: Mapping[str, Any],
    about: About,
    preloads: Sequence[Preload],
) -> Iterator[Written]:
    libraries = [_copy(Path(p.name), folder) for p in preloads if p.is_library]
    seen = set()
    choices = _choices(preloads, [_qualified(t) for t in printed["targets"]])
    for parts, data in itertools.product(choices, Data):
        if printed["unprintable"]:
            break
        script = write_repro(printed["source"], about, parts.definitions, data)
        if script.text in seen:
            continue
        seen.add(script.text)
        path.write_text(script.text)
        values = [folder / DATA] if script.needs_data else []
        beside = [*values, *libraries, *(_copy(m, folder) for m in parts.modules)]
        yield Written((path, *beside), f"source, {data}")
    for parts in choices:
        program = folder / "minimal.pt2"
        small = program.stat().st_size <= _EMBED_BYTES
        carried = program.read_bytes() if small else program.name
        values = [folder / DATA] if printed["two_sets"] else []
        names = ("passing", "failing") if about.passes else ("failing",)
        runs = {name: _FROM_FILE.format(name) for name in names}
        if not values:
            runs = {"failing": "exported.example_inputs[0]"}
        path.write_text(write_embedded(carried, about, parts.definitions, runs))
        beside = [*([] if small else [program]), *values, *libraries]
        beside += [_copy(m, folder) for m in parts.modules]
        yield Written((path, *beside), "the program itself")


@dataclass(frozen=True)
class _Parts:
    """One way to carry the preloads: text to embed, and modules that it imports."""

    definitions: tuple[Definitions, ...]
    modules: tuple[Path, ...]


def _choices(preloads: Sequence[Preload], operators: Sequence[str]) -> list[_Parts]:
    """Slices first; whole files only where they hold more."""
    choices: list[_Parts] = []
    for take in (lambda file: definitions(file, operators), whole_file):
        taken = [_take(preload, take) for preload in preloads]
        modules = tuple(
            module
            for preload, part in zip(preloads, taken, strict=True)
            for name in part.local_imports
            if preload.file and (module := preload.file.parent / f"{name}.py").is_file()
        )
        texts = [part.text for part in taken]
        if texts not in [[p.text for p in c.definitions] for c in choices]:
            choices.append(_Parts(tuple(taken), modules))
    return choices


def _take(preload: Preload, take: Callable[[Path], Definitions]) -> Definitions:
    """Turn a preload into lines of the script; their order is kept."""
    if preload.is_library:
        line = f'torch.ops.load_library("./{Path(preload.name).name}")'
        return Definitions(line, True, "", (), ())
    if preload.file is None:
        return Definitions(f"import {preload.name}", True, "", (), ())
    return take(preload.file)


def _qualified(target: str) -> str:
    """Turn ``mylib.mix.default`` into ``mylib::mix``."""
    namespace, _, rest = target.partition(".")
    return f"{namespace}::{rest.partition('.')[0]}"


def _copy(library: Path, folder: Path) -> Path:
    copied = folder / library.name
    shutil.copy(library, copied)
    return copied


def _drop_unused(folder: Path, written: Written) -> None:
    if folder / DATA not in written.files:
        (folder / DATA).unlink(missing_ok=True)
