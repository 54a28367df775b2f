"""Have shrinkfx miss a private name of PyTorch, as if a new version had moved it.

``HIDDEN_NAME`` is its place, as ``torch._inductor.cpp_builder.CppBuilder.build``.
PyTorch itself still has it: only the lookups of ``shrinkfx.worker.private_api`` fail.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

FEATURES = "shrinkfx.worker.private_api.feature"
HIDDEN = os.environ.get("HIDDEN_NAME", "")


def hide(features: ModuleType) -> None:
    """Have ``Feature.resolve`` and ``Feature.look_up`` fail for the hidden name."""
    feature = features.Feature
    resolve, look_up = feature.resolve, feature.look_up

    def refuse(self: Any, path: str) -> None:
        first, *rest = path.split(".")
        place = self.names.get(first, "").replace(":", ".")
        for end in range(len(rest) + 1):
            if ".".join([place, *rest[:end]]) == HIDDEN:
                raise features.MissingName(self.name, HIDDEN)

    def resolve_unless_hidden(self: Any, name: str) -> Any:
        refuse(self, name)
        return resolve(self, name)

    def look_up_unless_hidden(self: Any, path: str) -> Any:
        refuse(self, path)
        return look_up(self, path)

    feature.resolve, feature.look_up = resolve_unless_hidden, look_up_unless_hidden


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
            hide(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if HIDDEN:
    sys.meta_path.insert(0, Finder())
