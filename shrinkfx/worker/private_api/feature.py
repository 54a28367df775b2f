"""Private names that a version of PyTorch may lack, by the feature that uses them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from shrinkfx.errors import SEE_DOCTOR, LoadError
from shrinkfx.versions import RANGE


class MissingName(LoadError):
    """This PyTorch lacks a private name that shrinkfx uses."""

    def __init__(self, feature: str, name: str) -> None:
        reason = f"torch {torch.__version__} has no {name}"
        advice = f"install torch {RANGE}: shrinkfx is tested with it\n{SEE_DOCTOR}"
        super().__init__(feature, reason, advice)


@dataclass(frozen=True, eq=False)
class Feature:
    """A feature of shrinkfx that needs private names.

    Attributes:
        name: the name of the feature in messages to the user.
        names: the place of each object by its name in this package. For example,
            ``"torch._ops:OpOverload"`` is an attribute of a module, and
            ``"torch._inductor.config"`` is a module.
        without: what happens if a name is missing.
        attributes: the attributes of these objects, such as ``"CppBuilder.build"``.
        texts: by file in the folder of torch, lines that it must contain: generated
            code that shrinkfx matches, and names of C++.
    """

    name: str
    names: Mapping[str, str]
    without: str
    attributes: tuple[str, ...] = ()
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def resolve(self, name: str) -> Any:
        """Import the object of a name. A module's ``__getattr__`` calls this.

        Raises:
            AttributeError: the feature lists no such name.
            MissingName: this PyTorch lacks the object.
        """
        place = self.names.get(name)
        if place is None:
            raise AttributeError(f"{self.name!r} lists no name {name!r}")
        module, _, attribute = place.partition(":")
        try:
            imported = importlib.import_module(module)
            return getattr(imported, attribute) if attribute else imported
        except (ImportError, AttributeError) as error:
            raise MissingName(self.name, place.replace(":", ".")) from error

    @property
    def used(self) -> tuple[str, ...]:
        """The names and attributes, as arguments for ``look_up``."""
        return (*self.names, *self.attributes)

    def look_up(self, path: str) -> Any:
        """Return the object of a name, or of an attribute such as ``CppBuilder.build``.

        Raises:
            MissingName: this PyTorch does not have it.
        """
        first, *rest = path.split(".")
        value, place = self.resolve(first), self.names[first].replace(":", ".")
        for name in rest:
            place = f"{place}.{name}"
            try:
                value = getattr(value, name)
            except AttributeError as error:
                raise MissingName(self.name, place) from error
        return value

    def require(self) -> None:
        """Raise ``MissingName`` if this PyTorch lacks a name or an attribute."""
        for path in self.used:
            self.look_up(path)

    @functools.cached_property
    def missing(self) -> str:
        """A message about the first missing name: "torch 2.16.0 has no ..."; or ''.

        Texts are not looked up, because the code that matches them has a fallback.
        """
        try:
            self.require()
        except MissingName as error:
            return error.reason
        return ""
