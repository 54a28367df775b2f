"""Change a module as soon as it has been imported, by whomever."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

Change = Callable[[ModuleType], None]


class BeforeTorch:
    """Finds nothing, and costs next to nothing, until somebody imports torch."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._finds_torch = find_spec("torch") is not None
        self._note("torch" if self._finds_torch else "none")

    def _note(self, what: str) -> None:
        """Append a line about this interpreter in one write: others append as well."""
        with open(f"{self._folder}/started", "a") as file:
            file.write(f"{what} {sys.executable}\n")

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Have what watches torch take the place of this, just before it is needed."""
        if name == "torch":
            sys.meta_path.remove(self)
            if self._finds_torch:
                self._note("importing")
            entry_points = import_module(f"{__package__}.entry_points")
            entry_points.watch(self._folder)
        return None


class AfterImport:
    """Finds nothing itself: has the other finders find, and changes what comes of it.

    The module keeps the loader that it would have had.
    """

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self._changes = dict(changes)
        self._finding: set[str] = set()

    def install(self) -> None:
        """Come before all others."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        change = self._changes.get(name)
        if change is None or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = self._found_by_others(name, path, target)
        finally:
            self._finding.discard(name)
        if spec is not None and spec.loader is not None:
            _then(spec, change)
        return spec

    def _found_by_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in [each for each in sys.meta_path if each is not self]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None


def _then(spec: ModuleSpec, change: Change) -> None:
    """Have this one loader, of this one module, do something more, once."""
    loader = spec.loader
    assert loader is not None
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)
        execute(module)
        # A module may have put another thing in its place.
        change(sys.modules.get(spec.name, module))

    loader.exec_module = exec_module  # type: ignore[method-assign]
