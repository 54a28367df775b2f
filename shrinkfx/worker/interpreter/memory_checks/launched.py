"""Launches of kernels, as they were made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Shape and strides of a tensor that a kernel was launched with."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class Launched:
    """A launch with its grid, and the tensors that it was given, by parameter.

    Attributes:
        tried: by a configuration beyond the first, on copies.
    """

    kernel: str
    grid: tuple[int, int, int]
    given: Mapping[str, Layout]
    tried: bool = False
