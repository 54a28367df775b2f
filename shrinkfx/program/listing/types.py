"""What the values of a listing are, as fake tensors tell; and what is made of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


@dataclass(frozen=True)
class ListedType:
    """What a value of a listing is, at the sizes of its example."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str = "cpu"


Types = Mapping[tuple[str, str], ListedType]
"""By the name of a block and of a value in it: an argument, or a statement's."""

UNTYPED: Types = MappingProxyType({})
"""Nothing is known of any value."""


class Kind(StrEnum):
    """What of a listing can be made plainer, and is minimal or not, each for itself."""

    SIZES = "sizes"
    """Of inputs, weights and what is computed from them; ranges of dynamic dims."""
    VALUES = "values"
    """Elements of inputs."""
    WEIGHTS = "weights"
    """Elements of weights, and that they are weights."""
    DTYPES = "dtypes"
    LAYOUTS = "layouts"
    ARGUMENTS = "arguments"
    """Numbers, flags and lists that operators are called with."""
    OPERANDS = "operands"
    """Which values operators read, where others of the same type are there."""
    INSIDES = "insides"
    """Statements of branches and bodies."""
