"""Eager runs before a check, and the comparison with their results."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, partial
from pathlib import Path
from types import NoneType
from typing import Any, Self

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.protocol.answers import Answer, Checked, Difference, Invalid
from shrinkfx.protocol.requests import CheckOptions, ComparisonOptions
from shrinkfx.worker.eager.intermediates import (
    SEED,
    call_often,
    copy_value,
    mark_beyond_rounding,
    rounding_bound,
    run_eager,
    to_float32,
    to_float64,
    widen,
    widen_dtype,
)
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.describe import mutates
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.interpreter.findings import Unsupported
from shrinkfx.worker.model import (
    MUTATIONS,
    Inputs,
    flat_inputs,
    mutates_arguments,
    shared_weights,
)
from shrinkfx.worker.private_api import graph_api
from shrinkfx.worker.private_api.graph_api import pytree


class Reference:
    """Runs a program in eager, and compares compiled results with eager's.

    Attributes:
        may_wait: eager can run after the compiled program, which probably crashes and
            changes no values that eager needs. Without guard pages, a crash may depend
            on the memory that eager leaves.
    """

    def __init__(self, run: RebuiltCandidate, options: CheckOptions) -> None:
        self._run = run
        self.calls = options.calls
        self._taps = bool(options.taps)
        self._sought = options.sought
        self._close = Closeness.of(options)
        self._must_run = options.reference
        crashes = options.sought in (Kind.CRASH, Kind.IMA)
        may_wait = crashes and options.guard_pages.has_pages
        self.may_wait = may_wait and not mutates(run.exported)
        self._error = ""
        # A different seed in the second run shows which values are random. The compiled
        # program draws other numbers, unless it has an option to draw those of eager.
        other = SEED if options.fallback_random else SEED + 1
        program, calls = (run.exported, run.failing), options.calls
        eager = partial(run_eager, *program, calls=calls)
        first = partial(eager, seed=SEED, memory=0)
        second = partial(eager, seed=other, memory=1)
        exact = partial(run_in_float64, *program, calls=calls)
        self._first: Callable[[], list[Any]] = cache(first)
        self._second: Callable[[], list[Any]] = cache(second)
        self._run_in_float64 = cache(exact)
        # A crash may depend on the memory that eager leaves, so eager runs each time.
        if options.package and not crashes and not options.guard_pages.has_pages:
            kept = _KeptResults(run.failing, options)
            both = cache(lambda: kept.read_or_run("eager", lambda: [first(), second()]))
            self._first, self._second = (lambda: both()[0]), (lambda: both()[1])
            self._run_in_float64 = cache(lambda: kept.read_or_run("float64", exact))

    def run_eager(self) -> None:
        """Run eager twice. Errors are kept if the input program also fails in eager.

        If eager may wait, the second run follows when results are compared.
        """
        try:
            self._first()
            if not self.may_wait:
                self._second()
        except Exception as error:
            if self._must_run:
                raise
            self._error = f"{type(error).__name__}: {error}"

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
        if not self._must_run:
            return Checked()
        results = actual, self._first(), self._second()
        difference = compare(*results, self._run_in_float64, self._sought, self._close)
        names = self._differing_names(actual) if difference and self._taps else ()
        skipped = count_unstable_outputs(*results[1:])
        return Checked(difference, tuple(names), skipped)

    def _differing_names(self, actual: list[Any]) -> list[str]:
        """Return the names of the results that differ from eager's."""

        def differs(place: int, actual: Any, expected: Any, again: Any) -> bool:
            def one() -> list[Any] | None:
                outputs = self._run_in_float64()
                return None if outputs is None else [outputs[place]]

            results = [actual], [expected], [again]
            return compare(*results, one, close=self._close) is not None

        values = zip(actual, self._first(), self._second(), strict=True)
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
            results = self._first()
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


class _KeptResults:
    """Results of slow eager runs, in files next to the package of their program.

    Later checks of the package on the same inputs read them. An eager run of a large
    program, above all in float64, takes longer than a run of its package.
    """

    def __init__(self, inputs: Inputs, options: CheckOptions) -> None:
        self._inputs, self._package = inputs, options.package
        self._settings = options.calls, options.fallback_random

    def read_or_run(self, name: str, run: Callable[[], Any]) -> Any:
        """Return the results in the file of a run; if there are none, run it."""
        path = Path(f"{self._package}.{name}")
        if path.exists():
            digest, results = torch.load(path, weights_only=True)
            if digest == self._digest:
                return results
        started = time.monotonic()
        results = run()
        if time.monotonic() - started >= _SLOW_S and self._digest:
            self._store(path, results)
        return results

    def _store(self, path: Path, results: Any) -> None:
        leaves, structure = pytree.tree_flatten(results)
        free = shutil.disk_usage(path.parent).free
        if not _are_plain(leaves) or _count_bytes(leaves) * _LEAST_FREE > free:
            return
        stored = pytree.tree_unflatten(map(copy_value, leaves), structure)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError, RuntimeError):  # the disk is full
            torch.save((self._digest, stored), draft)
            draft.replace(path)
        draft.unlink(missing_ok=True)

    @cached_property
    def _digest(self) -> str:
        """The inputs and settings of a run; '' if they have no digest."""
        values = self._inputs.flat()
        if not _are_plain(values):
            return ""
        digest = hashlib.sha256(repr(self._settings).encode())
        for value in values:
            if isinstance(value, torch.Tensor):
                about = value.dtype, value.device, value.shape, value.stride()
                digest.update(repr(about).encode())
                content = value.detach().cpu().resolve_conj().resolve_neg()
                bytes_of = content.contiguous().reshape(-1).view(torch.uint8)
                digest.update(bytes_of.numpy().data)
            else:
                digest.update(repr(value).encode())
        return digest.hexdigest()


_SLOW_S = 2.0
"""Results of runs that take at least this many seconds are stored."""

_LEAST_FREE = 10
"""Results are stored if the free disk space is at least this many times their size."""


def _are_plain(values: Sequence[Any]) -> bool:
    """Return whether all values are dense tensors, numbers, strings or None."""
    return all(
        value.layout is torch.strided and not value.is_quantized
        if type(value) is torch.Tensor
        else type(value) in (bool, int, float, str, NoneType)
        for value in values
    )


def _count_bytes(values: Sequence[Any]) -> int:
    return sum(v.nbytes for v in values if isinstance(v, torch.Tensor))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_narrow(value: Any) -> bool:
    """Return whether each use of a value in float64 is a copy of it."""
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return is_float and value.dtype is not torch.float64


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


@dataclass(frozen=True)
class Closeness(ComparisonOptions):
    """The differences from eager that are no failure, by dtype."""

    @classmethod
    def of(cls, options: ComparisonOptions) -> Self:
        """Take the comparison options from the options of a request."""
        return cls(**{f.name: getattr(options, f.name) for f in fields(cls)})

    def tolerance(self, dtype: torch.dtype) -> tuple[float, float]:
        rtol, atol = tolerance(dtype)
        return (
            rtol if self.rtol is None else self.rtol,
            atol if self.atol is None else self.atol,
        )

    def tolerance_of(self, value: object) -> tuple[float, float]:
        """Return the tolerances (rtol, atol) of a result, which may be a number."""
        if isinstance(value, torch.Tensor):
            return self.tolerance(value.dtype)
        # A float may have been read from a tensor.
        like = torch.float32 if isinstance(value, float) else torch.int64
        return self.tolerance(like)


DEFAULT_TOLERANCES = Closeness()
"""The tolerances of ``torch.testing.assert_close``."""


def compare(
    actual: Sequence[Any],
    expected: Sequence[Any],
    again: Sequence[Any],
    exact: Callable[[], Sequence[Any] | None],
    sought: str = "",
    close: Closeness = DEFAULT_TOLERANCES,
) -> Difference | None:
    """Return the first output that differs from eager; None if all agree.

    Differences in metadata of any output come before differences in values.

    Args:
        actual: the outputs of the compiled program.
        expected: the outputs of eager.
        again: the outputs of a second eager run. Of an output that differs between the
            eager runs, only metadata is compared. Comparing the elements that agree
            is no alternative, because random values are equal by chance, most of all
            the zeros of a dropout.
        exact: returns the outputs of a float64 run, or None if there is none; called
            only if values differ. Rounding errors of eager itself are no bug.
        sought: ``nan`` or ``mismatch``: prefer the first output that differs so.
        close: the differences that are allowed.
    """
    if len(actual) != len(expected):
        text = f"{len(actual)} outputs, eager gives {len(expected)}"
        return Difference("number", text)
    differences: dict[bool, Difference] = {}  # the first of each sort; key: is it nan?
    results = actual, expected, again
    for difference in _differences(*results, cache(exact), close):
        differences.setdefault(difference.what == "nan", difference)
    if not differences:
        return None
    first = next(iter(differences))
    chosen = {"nan": True, "mismatch": False}.get(sought, first)
    chosen = chosen if chosen in differences else first
    other = "values" if chosen else "nan"
    return replace(differences[chosen], besides=other if len(differences) > 1 else "")


def _differences(
    actual: Sequence[Any],
    expected: Sequence[Any],
    again: Sequence[Any],
    exact: Callable[[], Sequence[Any] | None],
    close: Closeness,
) -> Iterator[Difference]:
    actual = [_as_number(a, e) for a, e in zip(actual, expected, strict=True)]
    mismatched = set()
    for position, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if differs := _metadata_differs(a, e, close):
            mismatched.add(position)
            what, text = differs
            yield Difference(what, f"output {position}: {text}")
    for position, (a, e, r) in enumerate(zip(actual, expected, again, strict=True)):
        if position in mismatched:
            continue
        same = partial(_same_number, close=close)
        if isinstance(e, _NUMBER) and same(e, r) and not same(a, e):
            text = f"output {position}: {a}, eager gives {e}"
            yield Difference("values", text)
        if not isinstance(e, torch.Tensor) or e.numel() == 0:
            continue
        if _all_close(a, e, *close.tolerance(e.dtype)) or not _stable(e, r):
            continue
        reference = exact()
        wide = reference[position] if reference is not None else None
        wrong = _mark_wrong_elements(a, e, wide, close)
        if wrong.any():
            yield _describe_values(position, a, e, wrong)


_NUMBER = (bool, int, float)


def _as_number(actual: Any, expected: Any) -> Any:
    """Return the number in a tensor that AOTInductor returns instead of a number."""
    if isinstance(expected, _NUMBER) and isinstance(actual, torch.Tensor):
        return actual.item() if actual.dim() == 0 else actual
    return actual


def _same_number(actual: float, expected: float, close: Closeness) -> bool:
    rtol, atol = close.tolerance_of(expected)
    if not rtol and not atol and not isinstance(expected, float):
        return actual == expected
    near = math.isclose(actual, expected, rel_tol=rtol, abs_tol=atol)
    return near or (math.isnan(actual) and math.isnan(expected))


def _metadata_differs(
    actual: Any, expected: Any, close: Closeness
) -> tuple[str, str] | None:
    """Return the property that differs, and a description; None if none differs."""
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        names = type(actual).__name__, type(expected).__name__
        same = type(actual) is type(expected)
        return None if same else ("type", f"{names[0]}, not {names[1]}")
    for what in ("dtype", "shape", "device"):
        a, e = getattr(actual, what), getattr(expected, what)
        if a != e:
            return what, f"{what} {a}, eager gives {e}"
    if close.strict and _strides(actual) != _strides(expected):
        text = f"strides {actual.stride()}, eager gives {expected.stride()}"
        return "strides", text
    return None


def _strides(tensor: torch.Tensor) -> list[int]:
    """Return the strides of the dims with more than one element."""
    return [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


def _mark_wrong_elements(
    actual: torch.Tensor, expected: torch.Tensor, exact: Any, close: Closeness
) -> torch.Tensor:
    """Return a mask of the wrong elements."""
    rtol, atol = close.tolerance(expected.dtype)
    a, e = widen(actual), widen(expected)
    wrong = ~torch.isclose(a, e, rtol=rtol, atol=atol, equal_nan=True)
    if isinstance(exact, torch.Tensor) and exact.shape == e.shape:
        wrong &= mark_beyond_rounding(actual, expected, exact, (rtol, atol))
    return wrong


def _stable(expected: torch.Tensor, again: torch.Tensor) -> bool:
    """Return whether two eager runs agree on all elements of an output."""
    if expected.shape != again.shape:
        return False
    return _all_close(expected, again, *_EAGER_TOLERANCES)


_EAGER_TOLERANCES = 1e-5, 1e-8
"""Tolerances (rtol, atol) between two eager runs of the same program."""

_PART = 1 << 18
"""The number of elements that are compared at once."""


def _all_close(
    actual: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float
) -> bool:
    """Return whether all elements of two tensors of equal shape and dtype are close.

    Buffers are allocated once, because under guard pages an allocation costs far more
    than comparing its content.
    """
    if not actual.numel():
        return True
    if actual.is_quantized:
        actual, expected = actual.dequantize(), expected.dequantize()
    parts = [each.reshape(-1).split(_PART) for each in (actual, expected)]
    buffers = _buffers(actual) if actual.is_floating_point() else ()
    for a, e in zip(*parts, strict=True):
        if buffers:
            error, bound, ok = (each[: a.numel()] for each in buffers)
            error.copy_(a).sub_(bound.copy_(e)).abs_()
            torch.le(error, bound.abs_().mul_(rtol).add_(atol), out=ok)
            # An infinite error is within an infinite bound, but it is an error.
            if ok.all() and error.max() < math.inf:
                continue
        close = torch.isclose(widen(a), widen(e), rtol=rtol, atol=atol, equal_nan=True)
        if not close.all():
            return False
    return True


def _buffers(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Allocate the buffers for comparing a part of a tensor."""
    length = min(_PART, tensor.numel())
    dtypes = torch.float64, torch.float64, torch.bool
    return tuple(tensor.new_empty(length, dtype=dtype) for dtype in dtypes)


def count_unstable_outputs(expected: Sequence[Any], again: Sequence[Any]) -> int:
    """Count the outputs that differ between two eager runs."""
    return sum(
        not _stable(e, a)
        for e, a in zip(expected, again, strict=True)
        if isinstance(e, torch.Tensor)
    )


def tolerance(dtype: torch.dtype) -> tuple[float, float]:
    """Return the tolerances (rtol, atol) of ``torch.testing`` for a dtype."""
    rtol, atol = graph_api.default_tolerances(dtype)
    return rtol, atol


def _describe_values(
    position: int, actual: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor
) -> Difference:
    finite = widen(expected).isfinite()
    new = ~widen(actual).isfinite() & finite & wrong
    is_new = bool(new.any())
    first = tuple(int(i) for i in (new if is_new else wrong).nonzero()[0])
    text = (
        f"output {position}: {int(wrong.sum())} of {wrong.numel()} elements differ, "
        f"the first {'non-finite one ' if is_new else ''}at {list(first)}: "
        f"{actual[first].item()}, eager gives {expected[first].item()}"
    )
    return Difference("nan" if is_new else "values", text)


class Float64Interpreter(fx.Interpreter):
    """Runs a program with all values of float32 and narrower types in float64.

    An operator that refuses float64, such as one for matrix units, runs in float32,
    which is precise enough to judge a program of a narrower dtype.

    Args:
        narrow: names of the placeholders whose tensors are widened at each use,
            because all weights at once may not fit into memory.
    """

    def __init__(self, module: fx.GraphModule, narrow: Collection[str]) -> None:
        super().__init__(module)
        self._narrow = narrow

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        return value if n.name in self._narrow else pytree.tree_map(to_float64, value)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(widen_dtype, (args, kwargs))
        widened = pytree.tree_map(to_float64, (args, kwargs))
        try:
            return super().call_function(target, *widened)
        except (RuntimeError, NotImplementedError, TypeError, Unsupported):
            return super().call_function(target, *pytree.tree_map(to_float32, widened))


def run_in_float64(
    exported: ExportedProgram, inputs: Inputs, *, calls: int = 1
) -> list[Any] | None:
    """Run a program in float64; None if one of its operators refuses that.

    Returns:
        The outputs of the last call. Buffers keep their values between calls; each
        call gets copies of the inputs.
    """
    flat = flat_inputs(exported, inputs)
    signature = exported.graph_signature
    names = [s.target or getattr(s.arg, "name", "") for s in signature.input_specs]
    is_input = [s.kind is InputKind.USER_INPUT for s in signature.input_specs]
    mutated = [s.target for s in signature.output_specs if s.kind in MUTATIONS]
    placeholders = [getattr(s.arg, "name", "") for s in signature.input_specs]
    narrow = set(shared_weights(exported))
    if not mutates_arguments(exported):  # torch.compile passes weights as inputs
        named = zip(placeholders, flat, is_input, strict=True)
        narrow |= {
            name for name, value, is_one in named if is_one and _is_narrow(value)
        }
    pairs = zip(placeholders, flat, strict=True)
    wide = [v if name in narrow else to_float64(copy_value(v)) for name, v in pairs]
    try:
        for _ in range(calls):
            for position, value in enumerate(flat):
                if is_input[position] and placeholders[position] not in narrow:
                    wide[position] = to_float64(copy_value(value))
            torch.manual_seed(SEED)
            with torch.no_grad():
                outputs = Float64Interpreter(exported.graph_module, narrow).run(*wide)
            for target, value in zip(mutated, outputs, strict=False):
                wide[names.index(target)] = value
    except Exception:  # noqa: BLE001 - an operator without a float64 kernel
        return None
    return pytree.tree_leaves(outputs[len(mutated) :])
