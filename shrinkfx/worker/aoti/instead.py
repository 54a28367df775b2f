"""Functions of Inductor's, replaced for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def instead(owner: object, name: str, value: Callable[..., Any]) -> Iterator[None]:
    """Put something in the place of an attribute for a while."""
    usual = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, usual)
