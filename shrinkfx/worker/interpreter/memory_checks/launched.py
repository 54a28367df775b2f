"""Records of kernel launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """Shape and strides, in elements, of a tensor argument."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class LaunchRecord:
    """A launch: its grid, and the layouts of its tensor arguments by parameter.

    Attributes:
        tried: it ran on copies, in a configuration other than the first.
    """

    kernel: str
    grid: tuple[int, int, int]
    layouts: Mapping[str, Layout]
    tried: bool = False
