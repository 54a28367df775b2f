"""Import hooks that patch a module right after its import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

Change = Callable[[ModuleType], None]


class BeforeTorch:
    """A module finder that only starts the capture when torch is imported.

    Args:
        folder: the folder of the capture.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._finds_torch = find_spec("torch") is not None
        self._note("torch" if self._finds_torch else "none")

    def _note(self, what: str) -> None:
        """Append a line about this interpreter, in one write because others append."""
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
        """Replace this finder by the watched entry points when torch is requested."""
        if name == "torch":
            sys.meta_path.remove(self)
            if self._finds_torch:
                self._note("importing")
            entry_points = import_module(f"{__package__}.entry_points")
            entry_points.watch(self._folder)
        return None


class AfterImport:
    """A module finder that delegates to the others, and patches the loaded modules.

    A module keeps the loader that it would have had.

    Args:
        changes: by module name, the function that patches the module.
    """

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self._changes = dict(changes)
        self._finding: set[str] = set()

    def install(self) -> None:
        """Put this finder before all others."""
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
            spec = find_spec(name)
        finally:
            self._finding.discard(name)
        if spec is not None and spec.loader is not None:
            _patch_loader(spec, change)
        return spec


def _patch_loader(spec: ModuleSpec, change: Change) -> None:
    """Patch a module's loader so that it calls ``change`` once after loading."""
    loader = spec.loader
    assert loader is not None
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)
        execute(module)
        # A module may have replaced itself in sys.modules.
        change(sys.modules.get(spec.name, module))

    loader.exec_module = exec_module  # type: ignore[method-assign]
