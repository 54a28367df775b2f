"""Preloads, the parts of them that a repro omits, and the bundle that it carries."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shrinkfx.program.uninstalled_files import ONLY_ON, is_library
from shrinkfx.protocol.record import Message


@dataclass(frozen=True)
class Preload:
    """A module or library that registers custom operators.

    Attributes:
        name: the name that the user passed: a file or a module name.
        file: the Python file whose definitions may be embedded, or None.
    """

    name: str
    file: Path | None = None

    @property
    def is_library(self) -> bool:
        return is_library(self.name)

    @property
    def module(self) -> str:
        """The name that ``import`` takes."""
        return Path(self.name).stem if self.name.endswith(".py") else self.name


@dataclass(frozen=True)
class CustomCompilerCode(Message):
    """Custom code that preloads add to PyTorch's compiler.

    Attributes:
        places: where the code is registered, as ``torch._inductor.config
            post_grad_custom_post_pass`` or ``torch._inductor.lowering lowerings:
            aten.silu.default``.
        sources: names of the files whose statements register the code.
        only_defined: ``sources`` are modules or files that define some of the code; no
            file of the user's registers it. An interactive session may have done so.
    """

    places: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    only_defined: bool = False


Unit = tuple[str, int, int]
"""File, line and column of a statement; for a preload without a file its name, 0, 0."""


@dataclass(frozen=True)
class Definitions:
    """The text that a repro contains for one preload.

    Attributes:
        text: the source. It never contains a ``from __future__`` import, which is legal
            only at the top of the repro.
        future: the ``__future__`` features to enable at the top of the repro.
    """

    text: str
    future: tuple[str, ...] = ()

    @property
    def with_future(self) -> str:
        """The text below its ``from __future__`` import."""
        future = f"from __future__ import {', '.join(self.future)}\n"
        return future * bool(self.future) + self.text


@dataclass(frozen=True)
class PreloadCut:
    """The parts of the preloads that are known to be unnecessary.

    Attributes:
        whole: embed whole files.
        dropped: statements whose effects change nothing, and preloads without a file
            that are not needed.
        modules, files: names of modules, and of files in the script's folder, that a
            test run used; None for all.
        elsewhere: paths of files outside the script's folder that a test run used.
        joined: modules may be inlined where they are imported, if their texts allow it.
        in_compiler: the custom compiler code that this cut retains.
        bare: this cut retains no custom compiler code, although the preloads register
            some.
        compiles: embed C++ as source where a call compiles it; otherwise carry the
            library.
    """

    whole: bool = False
    dropped: frozenset[Unit] = frozenset()
    modules: frozenset[str] | None = None
    files: frozenset[str] | None = None
    elsewhere: frozenset[str] = frozenset()
    joined: bool = False
    in_compiler: CustomCompilerCode = field(default_factory=CustomCompilerCode)
    bare: bool = False
    compiles: bool = False


@dataclass(frozen=True)
class PreloadBundle:
    """A preload bundle: one way for a repro to carry the preloads.

    Attributes:
        definitions: the text to embed for each preload in turn.
        unpacking: statements that make modules importable, or ''.
        files: files next to the script, by their names there.
        modules: names of the modules that ``unpacking`` contains.
        kept: what the bundle does with each preload (``cut``, ``whole``, ...), by its
            name.
        units: the code of each statement that a test may drop.
        tied: files of this machine that the script names by path or reads in place.
        absent: files that the preloads used and that this bundle does not contain.
        in_compiler, bare: as in the ``Cut`` that produced this bundle.
        compiles: the script compiles C++ when it starts.
    """

    definitions: tuple[Definitions, ...] = ()
    unpacking: str = ""
    files: Mapping[str, Path] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[Unit, str] = field(default_factory=dict)
    tied: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    in_compiler: CustomCompilerCode = field(default_factory=CustomCompilerCode)
    bare: bool = False
    compiles: bool = False

    @property
    def header_remarks(self) -> list[str]:
        """Header lines that list what the repro carries besides the program."""
        rows = {
            "Within:  the modules": self.modules,
            "Beside:  files in the folder of this script:": self.files,
            f"{ONLY_ON} the original machine, where the script reads these files:": [
                Path(file).name for file in self.tied
            ],
        }
        remarks = [f"{row} {', '.join(names)}" for row, names in rows.items() if names]
        if self.compiles:
            remarks.append("Needs:   ninja and a C++ compiler, for operators in C++")
        return [
            line
            for row in remarks
            for line in textwrap.wrap(row, 84, subsequent_indent=" " * 9)
        ]
