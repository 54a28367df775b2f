"""Find the files whose statements register custom code in the compiler.

    passes.py             config.post_grad_custom_post_pass = Drop()      passes.py
    __init__.py           from . import passes                            none
    preload_settings.py   config.post_grad_custom_post_pass = Drop()      my.passes

An import only leads to the code. A file that shrinkfx wrote is not reported either; it
sets an object that a module defines, or is a copy from a script.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrinkfx.preloads.preload_bundle import CustomCompilerCode, Unit
from shrinkfx.preloads.statements import Statement, read_source, statements_of

_OURS = "Written by shrinkfx"
_COPIED = "what {} defines"
_COPY = re.compile(_COPIED.format(r"(\S+)"))


def mark_as_generated(text: str, what: str) -> str:
    """Add a docstring that says that shrinkfx wrote the module, and its content."""
    return f'"""{_OURS}: {what}."""\n\n{text}'


def describe_copy(script: str) -> str:
    """Describe the content of a module that was copied from a script."""
    return _COPIED.format(script)


def without_generated_lines(statements: Iterable[Statement]) -> list[Statement]:
    """Drop the lines of a module that shrinkfx wrote and that a repro does not need.

    The ``sys.path`` lines go because the repro sets its own paths. A module that was
    copied from a script keeps all of its lines.
    """
    found = [*statements]
    header = _header(found)
    if not header.startswith(_OURS) or _COPY.search(header):
        return found
    return [s for s in found[1:] if not s.code.startswith("sys.path.insert(")]


def _header(statements: Sequence[Statement]) -> str:
    """Return the docstring of a module, or ''."""
    nodes = [each.node for each in statements[:1]]
    return ast.get_docstring(ast.Module(nodes, [])) or ""


def find_custom_code(
    places: Collection[str], units: Sequence[Unit]
) -> CustomCompilerCode:
    """Return the files whose code is registered at ``places``.

    Args:
        units: the statements that register it.
    """
    found = [_Source.of(unit) for unit in units]
    acting = [each for each in found if not each.is_import] or found
    names = dict.fromkeys(name for each in acting for name in each.names)
    is_set = any(each.is_set_for_it for each in acting)
    return CustomCompilerCode(tuple(sorted(places)), tuple(names), only_defined=is_set)


@dataclass(frozen=True)
class _Source:
    """The files or modules that a statement stands for.

    Attributes:
        is_set_for_it: the modules define an object that a file of shrinkfx registers.
    """

    names: tuple[str, ...]
    is_import: bool = False
    is_set_for_it: bool = False

    @classmethod
    def of(cls, unit: Unit) -> _Source:
        file, *place = unit
        name = Path(file).name
        try:
            text = read_source(Path(file)) if place[0] else ""
            statements = statements_of(text, file)
        except (OSError, SyntaxError):
            return cls((name,))
        nodes = [each for each in statements if each.place == tuple(place)]
        is_import = any(each.is_import for each in nodes)
        docstring = _header(statements)
        if not docstring.startswith(_OURS):
            return cls((name,), is_import)
        if script := _COPY.search(docstring):
            return cls((script[1],), is_import)
        known = tuple(dict.fromkeys(_imported_for(nodes, statements)))
        return cls(known or (name,), is_import, is_set_for_it=not is_import)


def _imported_for(
    nodes: Sequence[Statement], statements: Sequence[Statement]
) -> Iterator[str]:
    """Yield the modules that the statements ``nodes`` take names from."""
    wanted = frozenset[str]().union(*(each.reads for each in nodes))
    for each in reversed(statements):
        if each in nodes or each.binds & wanted:
            wanted |= each.reads
            if isinstance(each.node, ast.ImportFrom) and each.node.module:
                yield each.node.module
            elif isinstance(each.node, ast.Import) and each in nodes:
                yield from (alias.name for alias in each.node.names)
