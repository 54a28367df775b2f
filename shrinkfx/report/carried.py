"""Preloads, what is known of their need, and what a repro has of them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shrinkfx.program.beside import ONLY_ON, is_library
from shrinkfx.protocol.record import Message
from shrinkfx.report.definitions import Definitions


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
        return is_library(self.name)

    @property
    def module(self) -> str:
        """The name it is imported by."""
        return Path(self.name).stem if self.name.endswith(".py") else self.name


@dataclass(frozen=True)
class InCompiler(Message):
    """Code that is none of PyTorch's, and that preloads make a part of its compiler.

    Attributes:
        places: where it is, as ``torch._inductor.config post_grad_custom_post_pass``
            or ``torch._inductor.lowering lowerings: aten.silu.default``.
        sources: names of the files whose statements put it there.
        only_defined: sources are modules, or files, that define some of it; what put
            it there is no file of anybody's, but a session, say.
    """

    places: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    only_defined: bool = False


Unit = tuple[str, int, int]
"""File, line and column of a statement; of a preload without a file its name, 0, 0."""


@dataclass(frozen=True)
class Cut:
    """What of the preloads is known not to be needed.

    Attributes:
        whole: take whole files.
        acts: statements that change nothing.
        preloads: those of which nothing is needed, by their names.
        modules, files: what has been used, of what lies beside; None for all.
        elsewhere: what has been read, and does not lie beside.
        joined: modules need not be modules; where texts say so, too, they are written
            where they are imported.
        in_compiler: what is left of that.
        bare: nothing is left of it, though the preloads have put some there.
        compiles: C++ is carried as source where a call compiles it; else as library.
    """

    whole: bool = False
    acts: frozenset[Unit] = frozenset()
    preloads: frozenset[str] = frozenset()
    modules: frozenset[str] | None = None
    files: frozenset[str] | None = None
    elsewhere: frozenset[str] = frozenset()
    joined: bool = False
    in_compiler: InCompiler = field(default_factory=InCompiler)
    bare: bool = False
    compiles: bool = False


@dataclass(frozen=True)
class Carried:
    """One way to carry the preloads.

    Attributes:
        definitions: text to embed, of each preload in turn.
        unpacking: what makes modules importable, or ''.
        files: what lies beside the script, by its name there.
        modules: what ``unpacking`` holds.
        kept: what has come of each preload.
        units: what was kept for its effect alone.
        tied: files of this machine that are named by their paths, or read there.
        absent: what the preloads have used, and this does not carry.
        in_compiler, bare: as in the cut that it was made by.
        compiles: it compiles C++ as it begins.
    """

    definitions: tuple[Definitions, ...] = ()
    unpacking: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    units: tuple[Unit, ...] = ()
    tied: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    in_compiler: InCompiler = field(default_factory=InCompiler)
    bare: bool = False
    compiles: bool = False

    @property
    def remarks(self) -> list[str]:
        """Say in a header what there is besides the program."""
        rows = {
            "Within:  the modules": self.modules,
            "Beside:  files in the folder of this script:": self.files,
            f"{ONLY_ON} the original machine, where the script reads these files:": [
                Path(file).name for file in self.tied
            ],
        }
        said = [f"{row} {', '.join(names)}" for row, names in rows.items() if names]
        if self.compiles:
            said.append("Needs:   ninja and a C++ compiler, for operators in C++")
        return [
            line
            for row in said
            for line in textwrap.wrap(row, 84, subsequent_indent=" " * 9)
        ]
