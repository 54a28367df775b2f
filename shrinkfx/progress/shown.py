"""Show the progress of a run that a call of the library has started."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from shrinkfx.events import Listener
from shrinkfx.progress.notebook import in_notebook, make_bar
from shrinkfx.progress.terminal import Quiet, make_display


@contextlib.contextmanager
def show_progress(
    listener: Listener | None, *, quiet: bool = False
) -> Iterator[Listener]:
    """Yield the caller's listener, or show a run in a notebook's bar or on stderr.

    The display ends with the context.
    """
    if listener is not None:
        yield listener
        return
    bar = (
        Quiet() if quiet else make_bar() if in_notebook() else make_display(sys.stderr)
    )
    with contextlib.closing(bar):
        yield bar


def print_outcome(text: str) -> None:
    """Print a run's outcome, but not in a notebook, which shows the result itself."""
    if not in_notebook():
        print(text, file=sys.stderr)
