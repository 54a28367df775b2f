"""Replace functions of Inductor inside a context."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def replace_attribute(
    owner: object, name: str, value: Callable[..., Any]
) -> Iterator[None]:
    """Replace an attribute inside the context, and restore it after."""
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
