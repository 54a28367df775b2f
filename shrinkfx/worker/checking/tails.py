"""Tails: known memory after the end of results that are smaller than declared.

    the operator's result | zeros, or 0x5a, up to its declared end and some bytes more

Compiled code reads a result up to its declared end. Beyond the real end it reads
adjacent memory, which differs by process and machine: on another machine, a failure
that depends on it would seem fixed. So the program runs twice, with a different fill
byte each, and fails only if both runs fail in the same way.

Zeros are valid indices and the content of fresh memory; bytes of 0x5a make large
numbers of any dtype, and no NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from shrinkfx.failure.normalise import normalise
from shrinkfx.failure.signature import Kind
from shrinkfx.program.display_text import first_line
from shrinkfx.protocol.answers import Answer, Checked, Invalid
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.checking.passing import is_failure
from shrinkfx.worker.eager.intermediates import span
from shrinkfx.worker.graph.describe import mutates
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import flat_inputs
from shrinkfx.worker.private_api.graph_api import TorchDispatchMode, pytree
from shrinkfx.worker.sizes.bindings import bind_symbols, declared_bytes

FILLINGS = (0x00, 0x5A)
"""Fill bytes; a program that crashes does so with the first."""

_MORE = 4096
"""Bytes after the declared end, because vector code may read a little further."""

Compiled = Callable[..., Any]


def add_tails(
    compiled: Compiled, run: RebuiltCandidate, options: CheckOptions
) -> list[Compiled]:
    """Return the compiled program once for each fill byte, or as it is without tails.

    Only the first fill byte is used if the run is recorded, because a record describes
    one run, and if the program mutates buffers, because the second run would start with
    the mutated values.
    """
    if not options.tails:
        return [compiled]
    recorded = options.compiled_view or options.values or options.leave
    once = recorded or mutates(run.exported)
    declared = _largest_declared_bytes(run, options.tails)
    fillings = FILLINGS[:1] if once else FILLINGS
    return [_WithFillByte(compiled, options.tails, declared, byte) for byte in fillings]


def require_same_failure(runs: Iterable[Callable[[], Answer]], sought: str) -> Answer:
    """Return the answer of the last run, or the first that does not fail as sought.

    If, for instance, a run that should crash has a wrong result, the next run is not
    made: a crash there would be a failure with that fill byte only.

    Args:
        runs: the runs with each fill byte.
        sought: the kind of failure.

    Returns:
        ``Invalid`` if the runs fail in different ways.

    Raises:
        Exception: the exception of the last run.
    """
    failures: set[str] = set()
    differs = sought in (Kind.MISMATCH, Kind.NAN)
    *first, last = runs
    for run in first:
        try:
            answer = run()
        except Exception as error:
            if differs or sought in (Kind.CRASH, Kind.IMA):
                raise
            failures.add(_exception_key(error))
            continue
        if not (is_failure(answer) and differs):
            return answer
        failures.add(_answer_key(answer))
    try:
        answer = last()
    except Exception as error:
        if failures - {_exception_key(error)}:
            return Invalid(_DIFFERENT_FAILURES)
        raise
    otherwise = is_failure(answer) and failures - {_answer_key(answer)}
    return Invalid(_DIFFERENT_FAILURES) if otherwise else answer


_DIFFERENT_FAILURES = "how it fails depends on the memory after the end of a result"


def _exception_key(error: Exception) -> str:
    return f"{type(error).__name__}: {normalise(first_line(str(error)))}"


def _answer_key(answer: Answer) -> str:
    difference = answer.difference if isinstance(answer, Checked) else None
    return difference.what if difference else type(answer).__name__


class _WithFillByte:
    """A compiled program that runs with tails of one fill byte."""

    def __init__(
        self, compiled: Compiled, operators: Sequence[str], declared: int, byte: int
    ) -> None:
        self._compiled = compiled
        self._tails = operators, declared, byte

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _Tails(*self._tails):
            return self._compiled(*args, **kwargs)


class _Tails(TorchDispatchMode):
    """Adds a tail to results of operators, which AOTInductor calls by the dispatcher.

    Args:
        operators: the names of the operators.
        declared: the declared size of the largest result, in bytes.
        byte: the fill byte.
    """

    def __init__(self, operators: Sequence[str], declared: int, byte: int) -> None:
        super().__init__()
        self._operators, self._declared = frozenset(operators), declared
        self._byte = byte

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Any = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if str(func) not in self._operators:
            return result
        inputs = {
            _memory(v) for v in pytree.tree_leaves((args, kwargs)) if _is_plain(v)
        }
        return pytree.tree_map(lambda value: self._move_result(value, inputs), result)

    def _move_result(self, value: Any, inputs: set[int]) -> Any:
        """Copy a result to memory with a tail; views of arguments stay unchanged."""
        if not _is_plain(value) or (value.numel() and _memory(value) in inputs):
            return value
        nbytes = span(value) * value.itemsize
        length = max(nbytes, self._declared) + _MORE
        memory = torch.empty(length, dtype=torch.uint8, device=value.device)
        memory.fill_(self._byte)
        copy = memory[:nbytes].view(value.dtype)
        copy.copy_(value.as_strided((span(value),), (1,)))
        return copy.as_strided(value.shape, value.stride())


def _is_plain(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return not (value.is_quantized or value.is_conj() or value.is_neg())


def _memory(value: torch.Tensor) -> int:
    return value.untyped_storage().data_ptr()


def _largest_declared_bytes(run: RebuiltCandidate, operators: Sequence[str]) -> int:
    """Return the largest declared size of the operators' results, in bytes."""
    sizes = bind_symbols(run.exported, flat_inputs(run.exported, run.failing))
    declared = (
        declared_bytes(fake, sizes) or 0
        for node in _nodes(run.exported.graph_module)
        if str(node.target) in operators
        for fake in pytree.tree_leaves(node.meta.get("val"))
        if isinstance(fake, torch.Tensor)
    )
    return max(declared, default=0)


def _nodes(module: fx.GraphModule) -> Iterator[fx.Node]:
    """Yield the nodes of a graph and of its subgraphs."""
    for each in module.modules():
        if isinstance(each, fx.GraphModule):
            yield from each.graph.nodes
