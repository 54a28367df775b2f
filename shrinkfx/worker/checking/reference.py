"""The runs before a check: in eager, and on passing inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.answers import Answer, Checked, Invalid
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.checking.compare import (
    DEFAULT_TOLERANCES,
    Closeness,
    compare,
    count_unstable_outputs,
    run_in_float64,
)
from shrinkfx.worker.eager.intermediates import (
    SEED,
    call_often,
    rounding_bound,
    run_eager,
)
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.rebuild import RebuiltCandidate


class Reference:
    """Runs a program in eager, and compares compiled results with eager's."""

    def __init__(self, run: RebuiltCandidate, options: CheckOptions) -> None:
        self._run = run
        self.calls = options.calls
        # A different seed in the second run shows which values are random. The compiled
        # program draws other numbers, unless it has an option to draw those of eager.
        self._second_seed = SEED if options.fallback_random else SEED + 1
        self._taps = bool(options.taps)
        self._sought = options.sought
        self._close = Closeness.of(options)
        self._must_run = options.reference
        self._expected: list[Any] | None = None
        self._repeated: list[Any] = []
        self._error = ""

    def run_eager(self) -> None:
        """Run eager twice. Errors are kept if the input program also fails in eager."""
        try:
            self._expected = self._results(SEED)
            self._repeated = self._results(self._second_seed, memory=1)
        except Exception as error:
            if self._must_run:
                raise
            self._error = f"{type(error).__name__}: {error}"

    def _results(self, seed: int, memory: int = 0) -> list[Any]:
        run, calls = self._run, self.calls
        return run_eager(
            run.exported, run.failing, seed=seed, calls=calls, memory=memory
        )

    def _run_in_float64(self) -> list[Any] | None:
        return run_in_float64(self._run.exported, self._run.failing, calls=self.calls)

    def judge(self, compiled: Callable[..., Any], note: Note) -> Checked | Invalid:
        """Run the compiled program; return how its results differ from eager's."""
        note(Stage.RUN)
        try:
            actual = call_often(compiled, self._run.failing, self.calls)
        except Exception as error:
            # Eager raised the same error, so it is no fault of the compiler.
            if self._error == f"{type(error).__name__}: {error}":
                return Invalid(f"eager fails in the same way: {error}")
            raise
        unseen = tuple(getattr(compiled, "unseen", ()))
        if not getattr(compiled, "compares", True):
            return Checked(unseen=unseen)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        note(Stage.COMPARE)
        return replace(self.compare(actual), unseen=unseen)

    def compare(self, actual: list[Any]) -> Checked:
        """Compare results with eager's; return the difference as an answer."""
        if self._expected is None or not self._must_run:
            return Checked()
        results = actual, self._expected, self._repeated
        difference = compare(*results, self._run_in_float64, self._sought, self._close)
        names = self._differing_names(actual) if difference and self._taps else ()
        skipped = count_unstable_outputs(self._expected, self._repeated)
        return Checked(difference, tuple(names), skipped)

    def _differing_names(self, actual: list[Any]) -> list[str]:
        """Return the names of the results that differ from eager's."""
        assert self._expected is not None
        exact = functools.cache(self._run_in_float64)

        def differs(place: int, actual: Any, expected: Any, again: Any) -> bool:
            def one() -> list[Any] | None:
                return None if (outputs := exact()) is None else [outputs[place]]

            results = [actual], [expected], [again]
            return compare(*results, one, close=self._close) is not None

        values = zip(actual, self._expected, self._repeated, strict=True)
        names = enumerate(self._run.outputs)
        return [
            name
            for (place, name), value in zip(names, values, strict=True)
            if differs(place, *value)
        ]

    def needed_tolerances(self) -> list[tuple[float, float]]:
        """Return the tolerances (rtol, atol) that each result needs.

        The absolute tolerance covers the rounding errors of eager itself.

        Returns:
            [] if the tolerances of ``torch.testing`` are enough.
        """
        try:
            results = self._results(SEED)
        except Exception:  # noqa: BLE001 - eager may fail where the original does
            return []
        exact = self._run_in_float64() or results
        pairs = [*zip(results, exact, strict=True)]
        tolerances = [self._close.tolerance_of(r) for r in results]
        needed = [
            (rtol, max(atol, _rounding(r, e)))
            for (rtol, atol), (r, e) in zip(tolerances, pairs, strict=True)
        ]
        return (
            needed
            if needed != [DEFAULT_TOLERANCES.tolerance_of(r) for r in results]
            else []
        )


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _rounding(result: Any, exact: Any) -> float:
    """Return the largest finite bound of the rounding errors of an eager result."""
    if not _is_tensor(result) or not result.numel() or result.shape != exact.shape:
        return 0.0
    bound = rounding_bound(result, exact)
    return float(bound[bound.isfinite()].max()) if bound.isfinite().any() else 0.0


class PassingRun:
    """The run on the inputs on which a program must pass, before the failing run."""

    def __init__(self, run: RebuiltCandidate, options: CheckOptions) -> None:
        passing = run.at_passing
        self._reference = Reference(passing, options) if passing else None

    @property
    def has_inputs(self) -> bool:
        """Return whether the program has passing inputs."""
        return self._reference is not None

    def run_eager(self) -> None:
        if self._reference:
            self._reference.run_eager()

    def find_failure(self, compiled: Callable[..., Any], note: Note) -> Answer | None:
        """Run the compiled program on the passing inputs; return a failure or None."""
        if self._reference is None:
            return None
        note(Stage.PASSING)
        answer = self._reference.judge(compiled, lambda _: None)
        return answer if is_failure(answer) else None


def is_failure(answer: Answer) -> bool:
    """Return whether a run has not ended with the results of eager."""
    return not isinstance(answer, Checked) or answer.difference is not None
