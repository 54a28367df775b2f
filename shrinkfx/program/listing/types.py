"""Types of the values in a printed program, and the kinds of simplification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


@dataclass(frozen=True)
class ListedType:
    """The type of a value in a printed program, at the sizes of its example."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str = "cpu"


Types = Mapping[tuple[str, str], ListedType]
"""Types by the name of a block and of an argument or a statement in it."""

UNTYPED: Types = MappingProxyType({})
"""No types are known."""


class Kind(StrEnum):
    """A kind of simplification; each kind is minimal or not, independently."""

    SIZES = "sizes"
    """Sizes of inputs, weights and computed values; ranges of dynamic dims."""
    VALUES = "values"
    """Elements of inputs."""
    WEIGHTS = "weights"
    """Elements of weights, and whether they are weights at all."""
    DTYPES = "dtypes"
    LAYOUTS = "layouts"
    ARGUMENTS = "arguments"
    """Numbers, flags and lists that are passed to operators."""
    OPERANDS = "operands"
    """The values that operators read, if others of the same type are available."""
    INSIDES = "insides"
    """Statements of branches and loop bodies."""
