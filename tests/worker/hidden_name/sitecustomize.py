"""Hide a private name of PyTorch from shrinkfx, as if a new version had moved it.

``HIDDEN_NAME`` is the name, such as ``torch._inductor.cpp_builder.CppBuilder.build``.
PyTorch itself still has the name: only the look-up of shrinkfx does not find it.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

FEATURES = "shrinkfx.worker.private_api.feature"
HIDDEN = os.environ.get("HIDDEN_NAME", "")


def place(owner: Any) -> str:
    if isinstance(owner, ModuleType):
        return owner.__name__
    return f"{owner.__module__}.{getattr(owner, '__qualname__', '')}"


def without_name(owner: Any, name: str) -> Any:
    if f"{place(owner)}.{name}" == HIDDEN:
        raise AttributeError(f"{HIDDEN} is hidden")
    return getattr(owner, name)


def import_module(name: str) -> ModuleType:
    if name == HIDDEN:
        raise ImportError(f"{HIDDEN} is hidden")
    return importlib.import_module(name)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != FEATURES:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            hiding = {
                "getattr": without_name,
                "importlib": SimpleNamespace(import_module=import_module),
            }
            vars(module).update(hiding)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if HIDDEN:
    sys.meta_path.insert(0, Finder())
