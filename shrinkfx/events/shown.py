"""Show the progress of a run that a call of the library has started."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from shrinkfx.events import (
    Event,
    Listener,
    NoteAdded,
    QueryAnswered,
    SearchStarted,
    StepTaken,
)
from shrinkfx.events.terminal import Quiet, make_display


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


def in_notebook() -> bool:
    """Return whether this process is a Jupyter kernel."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def make_bar() -> Bar:
    """Return a progress bar of the kind that this notebook can show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets, tqdm warns and uses text
        from tqdm.auto import tqdm

    return Bar(tqdm)


_FORM = "{desc}, {n_fmt} checks [{elapsed}]"


class Bar:
    """A progress bar of checks, with notes and accepted steps below it.

    Args:
        make: ``tqdm``, its variant for terminals or for notebooks.
    """

    def __init__(self, make: Any) -> None:  # noqa: ANN401 - tqdm has several
        self._make, self._bar = make, None

    def __call__(self, event: Event) -> None:
        """Show an event."""
        match event:
            case SearchStarted(operators, max_checks):
                self.close()
                self._bar = self._make(total=max_checks, bar_format=_FORM)
                self._describe(operators)
            case QueryAnswered():
                self._describe(event.operators)
                if self._bar is not None:
                    self._bar.update()
            case NoteAdded(text):
                self._make.write(text)
            case StepTaken():
                self._make.write(
                    f"reduced from {event.before} to {event.after} operators, "
                    f"{event.seconds:.0f} s"
                )

    def _describe(self, operators: int) -> None:
        if self._bar is not None:
            self._bar.set_description_str(f"{operators} operators", refresh=False)

    def close(self) -> None:
        """Stop the bar, and leave it on the screen."""
        if self._bar is not None:
            self._bar.close()
