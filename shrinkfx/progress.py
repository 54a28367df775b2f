"""What a user sees while a run goes on: a bar, plain lines, or nothing."""

from __future__ import annotations

from typing import NoReturn, TextIO

from tqdm import tqdm

from shrinkfx.search.events import Checked, Event, Noted, Started, Stepped, Tried

_BAR = "{desc}, {n_fmt} checks [{elapsed}, {rate_fmt}{postfix}]"
_BAR_WITH_TOTAL = (
    "{desc}, {n_fmt} of {total_fmt} checks [{elapsed}, {rate_fmt}{postfix}]"
)


class Quiet:
    """Show nothing."""

    def __call__(self, event: Event) -> None:
        """Take an event."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Plain(Quiet):
    """One line per accepted step, for logs and pipes."""

    shown: tuple[type[Event], ...] = (Noted, Stepped)

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: Event) -> None:
        if isinstance(event, self.shown):
            print(line(event), file=self._stream, flush=True)


class Verbose(Plain):
    """One line per check as well."""

    shown = (Noted, Stepped, Checked, Tried)


class Progress(Quiet):
    """A bar of checks; notes and accepted steps scroll above it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: tqdm[NoReturn] | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case Started(operators, max_checks):
                self._begin(max_checks, "checks")
                self._describe(f"{operators} operators")
            case Checked():
                self._advance(event)
            case Tried(sizes):
                if self._bar is None:
                    self._begin(None, "examples")
                self._describe(sizes)
                self._step()
            case Noted() | Stepped():
                tqdm.write(line(event), file=self._stream)

    def _begin(self, total: int | None, unit: str) -> None:
        form = _BAR if total is None else _BAR_WITH_TOTAL
        self._bar = tqdm(
            total=total,
            unit=f" {unit}",
            file=self._stream,
            bar_format=form.replace("checks", unit),
            dynamic_ncols=True,
        )

    def _describe(self, text: str) -> None:
        if self._bar is not None:
            self._bar.set_description_str(text, refresh=False)

    def _step(self) -> None:
        if self._bar is not None:
            self._bar.update()

    def _advance(self, event: Checked) -> None:
        self._describe(f"{event.operators} operators")
        if self._bar is not None and event.seconds_left is not None:
            left = f"{event.seconds_left / 60:.0f} min left"
            self._bar.set_postfix_str(left, refresh=False)
        self._step()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def line(event: Event) -> str:
    """Say in one line what happened."""
    match event:
        case Noted(text):
            return text
        case Stepped(before, after, strategy, check, seconds):
            step = f"{before} -> {after} operators"
            return f"{step}  {strategy}  check {check}  {seconds:.0f} s"
        case Checked(check, outcome, operators):
            return f"check {check}: {outcome}; {operators} operators so far"
        case Tried(sizes, answer, said):
            return f"{sizes}: {answer}" + (f" ({said})" if said else "")
        case Started(operators):
            return f"searching among {operators} operators"
