"""A run that a call of the library has begun, shown where the caller looks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from shrinkfx.events import Listener
from shrinkfx.progress.notebook import in_notebook, make_bar
from shrinkfx.progress.terminal import Quiet, on_stream


@contextlib.contextmanager
def shown(listener: Listener | None, *, quiet: bool = False) -> Iterator[Listener]:
    """Show a run where nobody else listens: a bar in a notebook, else on stderr."""
    if listener is not None:
        yield listener
        return
    bar = Quiet() if quiet else make_bar() if in_notebook() else on_stream(sys.stderr)
    with contextlib.closing(bar):
        yield bar


def sum_up(text: str) -> None:
    """Say at the end what came of a run; a notebook shows the result by itself."""
    if not in_notebook():
        print(text, file=sys.stderr)
