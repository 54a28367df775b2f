"""Build the preload bundle of a repro from preloads and the files that they use."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx.preloads.custom_code_sources import without_generated_lines
from shrinkfx.preloads.preload_bundle import (
    Definitions,
    Preload,
    PreloadBundle,
    PreloadCut,
    Unit,
)
from shrinkfx.preloads.relocation import (
    Relocator,
    drop_compiled_libraries,
    find_named_files,
)
from shrinkfx.preloads.slicing import Slice, Slicer
from shrinkfx.preloads.statements import (
    REFLECTION,
    Statement,
    aliases_of,
    read_source,
    statements_of,
    text_of,
    with_packages,
)
from shrinkfx.program.uninstalled_files import UninstalledFiles

_TAKEN = {
    "repro.py",
    "repro_inputs.pt",
    "minimal.pt2",
    "minimal.zip",
    "minimal_inputs.pt",
}


def build_bundle(
    preloads: Sequence[Preload], used: UninstalledFiles, cut: PreloadCut
) -> PreloadBundle:
    """Build the bundle with the parts of preloads that a cut leaves.

    Raises:
        OSError, SyntaxError: a file no longer exists or cannot be parsed.
    """
    carried = drop_compiled_libraries(used, read_source) if cut.compiles else used
    files: dict[str, Path] = {}
    for each in preloads:
        if each.file and files.setdefault(each.module, each.file) != each.file:
            files[each.name] = each.file  # another file has the same name
    modules = files | {name: Path(file) for name, file in used.modules.items()}
    builder = _BundleBuilder(preloads, carried, cut, files, modules)
    return replace(builder.build(), compiles=carried is not used)


@dataclass
class _BundleBuilder:
    """Builds the bundle for one cut of the preloads.

    Attributes:
        files: the files of preloads, by module name.
        modules: files of all modules, preloads included, by module name.
    """

    preloads: Sequence[Preload]
    used: UninstalledFiles
    cut: PreloadCut
    files: Mapping[str, Path]
    modules: Mapping[str, Path]

    def __post_init__(self) -> None:
        self._paths = Relocator(self.used, self.modules)
        self._slicer = Slicer(
            *(self.files, self.modules, self._paths.roots),
            *(self.used.callers, self.cut, self._statements),
        )

    def build(self) -> PreloadBundle:
        """Build the bundle."""
        slices = self._slicer.slices()
        places, files = self._find_files()
        embedded = {name: each.definitions for name, each in slices.items()}
        kept = {p.name: self._describe_handling(p, embedded) for p in self.preloads}
        inlined = None if places else self._inline(slices)
        modules = {} if inlined else self._find_modules(slices, is_tied=bool(places))
        embedded |= inlined or {
            name: Definitions(import_line(name))
            for name, each in modules.items()
            if each.selected
        }
        at = {
            self._paths.near(each.file) or f"{name}.py": each.definitions.with_future
            for name, each in modules.items()
        }
        there = {str(f) for place in {*at, *places} for f in Path(place).parents}
        folders = [each for each in self._paths.search_path if each in there]
        return PreloadBundle(
            definitions=tuple(self._take(each, embedded) for each in self.preloads),
            unpacking=format_unpacking(at, places, folders) if modules else "",
            files=files,
            modules=tuple(sorted(modules)),
            kept=kept,
            units=dict(self._units(slices)),
            tied=self._files_used_in_place(slices),
            absent=tuple(
                p for p in self._paths.files_by_path if Path(p) not in files.values()
            ),
            in_compiler=self.cut.in_compiler,
            bare=self.cut.bare,
        )

    def _statements(self, file: Path) -> Iterator[Statement]:
        statements = statements_of(read_source(file), str(file))
        return self._paths.move(file, without_generated_lines(statements))

    def _inline(self, slices: Mapping[str, Slice]) -> dict[str, Definitions] | None:
        """Inline modules into the preloads that import them; None if impossible."""
        if not self.cut.joined:
            return None
        try:
            texts = inline_modules(slices, self.files)
        except CannotInlineError:
            return None
        future = {f for each in slices.values() for f in each.definitions.future}
        return {
            name: Definitions(t, tuple(sorted(future))) for name, t in texts.items()
        }

    def _find_modules(
        self, slices: Mapping[str, Slice], *, is_tied: bool
    ) -> dict[str, Slice]:
        """Return the slices that must be importable modules.

        Args:
            is_tied: files have places in the folders of modules.
        """
        imported = set[str]().union(
            *(each.imported - {each.name} for each in slices.values())
        )

        def is_module(each: Slice) -> bool:
            if each.name not in self.files or each.name in imported:
                return True
            nodes = (node for s in each.selected for node in ast.walk(s.node))
            is_relative = any(getattr(node, "level", 0) for node in nodes)
            in_place = "." in each.name or "__file__" in each.definitions.text
            return bool(each.selected) and (is_tied or in_place or is_relative)

        return {name: each for name, each in slices.items() if is_module(each)}

    def _take(
        self, preload: Preload, embedded: Mapping[str, Definitions]
    ) -> Definitions:
        """Convert a preload to lines of the script."""
        if (preload.name, 0, 0) in self.cut.dropped:
            return Definitions("")
        if preload.is_library:
            path = f"""__file__.rpartition("/")[0] + "/{Path(preload.name).name}\""""
            return Definitions(f"torch.ops.load_library({path})")
        if preload.file is None:
            return Definitions(import_line(preload.name))
        is_first = self.files.get(preload.module) == preload.file
        return embedded[preload.module if is_first else preload.name]

    def _describe_handling(
        self, preload: Preload, embedded: Mapping[str, Definitions]
    ) -> str:
        """Return what the bundle does with a preload, in the words of the summary."""
        if not self._take(preload, embedded).text:
            return "not needed"
        if preload.is_library:
            return "library"
        if preload.file is None:
            return "imported"
        return "whole" if self.cut.whole else "cut"

    def _units(self, slices: Mapping[str, Slice]) -> Iterator[tuple[Unit, str]]:
        for preload in self.preloads:
            unit = preload.name, 0, 0
            if preload.file is None and unit not in self.cut.dropped:
                yield unit, ""
        for each in slices.values():
            for statement in each.selected:
                if self._slicer.is_root(each, statement):
                    yield each.unit(statement), statement.code

    def _files_used_in_place(self, slices: Mapping[str, Slice]) -> tuple[str, ...]:
        """List files that are used in place; a linker finds its libraries by itself."""
        files = self._paths.files_by_path
        statements = [s for each in slices.values() for s in each.selected]
        named = {*find_named_files(statements, files)}
        read = {
            file
            for file in self.used.files
            if str(Path(file).resolve()) in self.cut.elsewhere
        }
        return tuple(file for file in files if file in named | read)

    def _find_files(self) -> tuple[dict[str, str], dict[str, Path]]:
        """Return all files next to the script, and their locations among the modules.

        Returns:
            Names next to the script by location, and original paths by name.
        """
        places: dict[str, str] = {}
        files: dict[str, Path] = {}
        named: dict[str, Path] = {}
        for path in (*self.used.libraries, *self.used.files):
            name = _free_name(Path(path), named)
            named[name] = Path(path)
            if self.cut.files is not None and name not in self.cut.files:
                continue
            place = self._paths.place(path)
            if path in self.used.files and not (place and self._paths.is_carried(path)):
                continue
            files[name] = Path(path)
            if place is not None:
                places[place] = name
        for preload in self.preloads:
            if preload.is_library and (preload.name, 0, 0) not in self.cut.dropped:
                files.setdefault(Path(preload.name).name, Path(preload.name))
        return places, files


def _free_name(file: Path, others: Mapping[str, Path]) -> str:
    name, number = file.name, 1
    while name in _TAKEN or others.get(name, file) != file:
        number += 1
        name = f"{number}-{file.name}"
    return name


def import_line(module: str) -> str:
    """Return an import statement, also for a name that is no identifier."""
    if all(part.isidentifier() for part in module.split(".")):
        return f"import {module}"
    return f"__import__({module!r})"


_BEGIN = """\
import pathlib
import sys
import tempfile

# Recreate the files that the operators import and load in a temporary folder.
HOME = tempfile.TemporaryDirectory()
"""

_WRITE = 'path.write_text(text, encoding="utf-8")'
_LINK = "path.symlink_to(pathlib.Path(__file__).resolve().parent / file)"


def format_unpacking(
    modules: Mapping[str, str], files: Mapping[str, str], folders: Sequence[str]
) -> str:
    """Return statements that recreate modules and files at their relative paths.

    Args:
        modules: texts of modules, by relative path.
        files: names of the files next to the script, by relative path.
        folders: the relative folders that modules are imported from.
    """
    texts = {at: _literal(text) for at, text in modules.items()}
    parts = [_BEGIN, _each("text", texts, _WRITE)]
    if files:
        names = {at: repr(name) for at, name in files.items()}
        parts.append(_each("file", names, _LINK))
    below = (f" + {f'/{each}'!r}" if each != "." else "" for each in folders)
    searched = ", ".join(f"HOME.name{each}" for each in below)
    return "".join([*parts, f"sys.path[:0] = [{searched}]\n"])


def _each(what: str, literals: Mapping[str, str], act: str) -> str:
    rows = "".join(f"    {at!r}: {literal},\n" for at, literal in literals.items())
    return (
        f"for place, {what} in {{\n{rows}}}.items():\n"
        "    path = pathlib.Path(HOME.name, place)\n"
        "    path.parent.mkdir(parents=True, exist_ok=True)\n"
        f"    {act}\n"
    )


def _literal(text: str) -> str:
    """Quote a module readably."""
    quoted = text.replace("\\", "\\\\").replace("'''", "\\'\\'\\'")
    literal = f"'''\\\n{quoted}'''"
    ends_well = not text.endswith("'") and "\r" not in text and "\0" not in text
    return literal if ends_well and ast.literal_eval(literal) == text else repr(text)


# Inline modules at the statements that import them, so that a repro is one text.
#
#     from .scale import SCALE            SCALE = 2.0
#     def mix(x): return x * SCALE        def mix(x): return x * SCALE
#
# The text executes the same statements in the same order, so a repro needs no folders
# to import from. All modules share one namespace. Therefore no two modules may bind a
# name that is read, and no code may read a module as a value or look for files next
# to it.


_OF_A_MODULE = re.compile(r"__(file|name|package|path|spec|loader|getattr)__")

_HASHED = re.compile(r"get_hash_for_files\(\s*[(\[]\s*__file__\s*,?\s*[)\]]\s*\)")
"""How a pass hashes its own source; the inlined file contains that source too."""

_OF_OPERATORS = re.compile(r"\w+ = torch\.ops(\.\w+)+")
"""An assignment that has the same value in every module, as an import has."""


class CannotInlineError(Exception):
    """The modules must remain modules; the caller then writes them as files."""


def inline_modules(slices: Mapping[str, Slice], first: Iterable[str]) -> dict[str, str]:
    """Return the text of each module of ``first``, with its imports inlined.

    Raises:
        CannotInlineError: the inlined text would not do what the modules do.
    """
    inliner = _ModuleInliner(slices)
    found = {name: text_of(inliner.inlined(name)) for name in first}
    selected = {name for name, each in slices.items() if each.selected}
    if unused := selected - inliner.begun:
        raise CannotInlineError(f"nothing imports {', '.join(sorted(unused))}")
    return found


@dataclass
class _ModuleInliner:
    """Records which modules and imports the text already contains.

    Attributes:
        begun: names of the modules that are written or being written.
        shared: imports of other modules, and aliases of operators, as code.
        binders: the modules that bind a name, by that name.
    """

    slices: Mapping[str, Slice]
    begun: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    binders: dict[str, set[str]] = field(default_factory=dict)

    def inlined(self, name: str) -> Iterator[Statement]:
        """Yield the statements of a module, after the packages that contain it."""
        for module in with_packages(name):
            if module in self.slices and module not in self.begun:
                self.begun.add(module)
                yield from self._write(self.slices[module])

    def _write(self, module: Slice) -> Iterator[Statement]:
        gap = "\n\n"
        for each in module.selected:
            code = _HASHED.sub("", each.code)
            if _OF_A_MODULE.search(code) or REFLECTION.search(code):
                raise CannotInlineError(f"{module.name} refers to itself")
            if each.modules(module.package) & self.slices.keys():
                yield from self.inlined(self._imported(each, module))
            elif self._is_new(each, module.name):
                yield replace(each, text=gap + each.text)
                gap = ""

    def _imported(self, each: Statement, importer: Slice) -> str:
        """Return the module that a statement takes a name from.

        Raises:
            CannotInlineError: the statement does more than that.
        """
        if not each.is_import:
            raise CannotInlineError(f"{importer.name} imports as it runs")
        (alias,) = aliases_of(each.node)
        ((home, names),) = each.names_from(importer.package).items()
        inner = [f"{home}.{name}" for name in names if f"{home}.{name}" in self.slices]
        read = frozenset[str]().union(*(s.reads for s in importer.selected)) - {"*"}
        if (inner or not names) and each.binds & read:
            raise CannotInlineError(f"{each.code} is read as a module")
        if alias.asname not in (None, alias.name) and each.binds & read:
            raise CannotInlineError(f"{each.code} is read by another name")
        if not inner and home not in self.slices:
            raise CannotInlineError(f"{each.code}: from a module that is installed")
        return (*inner, home)[0]

    def _is_new(self, each: Statement, module: str) -> bool:
        """Return False for a repeated import, and reject a second binding of a name.

        Raises:
            CannotInlineError: two modules bind the same name, and a statement reads it.
        """
        if each.is_import or _OF_OPERATORS.fullmatch(each.code):
            if each.code in self.shared:
                return False
            self.shared.add(each.code)
            # "import a" and "import a.b" bind the same module.
            is_plain = each.code.startswith("import ") and " as " not in each.code
            module = "import" if is_plain else each.code
        for name in each.binds & self._read:
            binders = self.binders.setdefault(name, set())
            binders.add(module)
            if len(binders) > 1:
                raise CannotInlineError(f"{name} is bound in {sorted(binders)}")
        return True

    @functools.cached_property
    def _read(self) -> frozenset[str]:
        slices = self.slices.values()
        return frozenset().union(*(s.reads for each in slices for s in each.selected))
