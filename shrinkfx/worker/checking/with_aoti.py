"""Check a program with AOTInductor: compile it, load it, run it and compare."""

from __future__ import annotations

import copy
import gc
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import fx

from shrinkfx.failure.signature import Kind, Stage, normalise
from shrinkfx.program.display_text import first_line
from shrinkfx.protocol.answers import Answer, Checked, Difference, Invalid, Stopped
from shrinkfx.protocol.choices import Guard, InductorOptions, Weights
from shrinkfx.protocol.requests import CheckOptions, Request, Setup
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.aoti.fast_build import StepPassed
from shrinkfx.worker.aoti.instrumented import build_instrumented
from shrinkfx.worker.checking.reference import PassingRun, Reference, is_failure
from shrinkfx.worker.cpu_memory import asan
from shrinkfx.worker.cuda_memory import red_zones
from shrinkfx.worker.eager.intermediates import call, span
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.describe import mutates
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import flat_inputs
from shrinkfx.worker.private_api.graph_api import TorchDispatchMode, pytree
from shrinkfx.worker.sizes.bindings import bind_symbols, declared_bytes

_RERUN_S = 5.0
"""Seconds after which a child does not run a passing program again."""


def check_with_aoti(
    setup: Setup,
    run: RebuiltCandidate,
    options: CheckOptions,
    note: Note,
    folder: Path,
    recording: Recording | None = None,
) -> Answer:
    if options.guard_pages in (Guard.AFTER, Guard.BEFORE):
        # The inputs were loaded before guard pages were on, so they have none.
        moved = copy.deepcopy((run.failing, run.passing))
        run = replace(run, failing=moved[0], passing=moved[1])
    reference, before = Reference(run, options), PassingRun(run, options)
    note(Stage.EAGER)
    reference.run_eager()
    before.run_eager()
    red_zones.log_zone_protection()
    red_zones.check_zones(" in eager")
    note(Stage.COMPILE)
    inductor = _inductor_options(setup, options)
    try:
        package = aoti.build_once(run.exported, folder, inductor, options)
    except StepPassed:
        return Stopped(f"{options.only} passes, nothing else was tried")
    red_zones.check_zones(" of a kernel that was timed")
    note(Stage.LOAD)
    try:
        compiled = red_zones.check_zones_after_calls(aoti.load(package))
    except aoti.CannotHandOver as error:
        print(f"shrinkfx: its weights go into the package: {error}", flush=True)
        inlined = _with_weights_inside(options)
        return check_with_aoti(setup, run, inlined, note, folder, recording)
    with_tails = add_tails(compiled, run, options)[0]
    if failure := before.find_failure(
        recording.divert_results(with_tails) if recording else with_tails, note
    ):
        return failure
    if run.passing and mutates(run.exported):
        # With the initial values of its buffers.
        compiled = red_zones.check_zones_after_calls(aoti.load(package))
    runs = 1 if mutates(run.exported) else options.runs
    if recording is not None:
        compiled = recording.keep_results(compiled)
    attempts = (
        partial(_run_until_it_fails, reference, filled, runs, note)
        for filled in add_tails(compiled, run, options)
    )
    answer = require_same_failure(attempts, options.sought)
    # A corrupt heap may only show when the program's memory is freed.
    del compiled
    gc.collect()
    note(Stage.DONE)
    return answer


def _with_weights_inside(options: CheckOptions) -> CheckOptions:
    """Return options that keep the weights in the package.

    AOTInductor then places the weights itself, so any failure is its own.
    """
    return replace(options, package=None, weights=Weights.INSIDE)


def _inductor_options(setup: Setup, options: CheckOptions) -> InductorOptions:
    inductor = {**setup.inductor, **options.inductor}
    if options.sanity:
        os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
    if options.fallback_random:
        inductor["fallback_random"] = True
    if options.sanitize:
        inductor = {**asan.OPTIONS, **inductor}
    return inductor


def _run_until_it_fails(
    reference: Reference, compiled: Callable[..., Any], runs: int, note: Note
) -> Answer:
    """Repeat a run that passes, at most ``runs`` times and for ``_RERUN_S`` seconds."""
    stop = time.monotonic() + _RERUN_S
    for remaining in reversed(range(runs)):
        answer = reference.judge(compiled, note)
        if is_failure(answer) or not remaining or time.monotonic() > stop:
            break
    return answer


def compile_instrumented(
    setup: Setup,
    build: Callable[[], RebuiltCandidate],
    request: Request,
    note: Note,
    folder: Path,
) -> Request:
    """Compile a program for an interpreter that runs it under AddressSanitizer.

    Args:
        build: returns the program.

    Returns:
        The request, with the compiled package. If compiling fails, the request is
        unchanged: the interpreter compiles the program and reports the failure.
    """
    options, package = request.options, folder / "instrumented.pt2"
    build_options = replace(options, package=str(package), sanitize=False)
    try:
        exported = build().exported
        note(Stage.COMPILE)
        inductor = _inductor_options(setup, build_options)
        build_instrumented(exported, folder, inductor, build_options)
    except Exception:  # noqa: BLE001 - it is tried again, and told then
        traceback.print_exc()
        return request
    return replace(request, options=replace(options, package=str(package)))


def check_undeclared_sizes(
    setup: Setup,
    run: RebuiltCandidate,
    options: CheckOptions,
    note: Note,
    folder: Path,
) -> Answer:
    """Run a compiled package at sizes that its program does not declare.

    The package must refuse these sizes, or return what eager returns. If eager raises,
    the package must raise, too.

    Returns:
        ``Checked``, with the message in ``refused`` if the package raises.
    """
    os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
    reference, raised = Reference(run, options), ""
    note(Stage.EAGER)
    try:
        reference.run_eager()
    except Exception as error:  # noqa: BLE001 - what the compiled program must do, too
        raised = f"{type(error).__name__}: {first_line(str(error))}"
    note(Stage.LOAD)
    package = aoti.build_once(run.exported, folder, setup.inductor, options)
    compiled = aoti.load(package)
    try:
        answer = Checked() if raised else reference.judge(compiled, note)
        if raised:
            note(Stage.RUN)
            call(compiled, run.failing)
            text = f"the compiled program returns a result, and eager raises {raised}"
            answer = Checked(Difference("values", text))
    except Exception as error:  # noqa: BLE001 - loud enough
        answer = Checked(refused=str(error))
    note(Stage.DONE)
    return answer


# Tails: known memory after the end of results that are smaller than declared.
#
#     the operator's result | zeros, or 0x5a, up to its declared end and some bytes more
#
# Compiled code reads a result up to its declared end. Beyond the real end it reads
# adjacent memory, which differs by process and machine: on another machine, a failure
# that depends on it would seem fixed. So the program runs twice, with a different
# fill byte each, and fails only if both runs fail in the same way.
#
# Zeros are valid indices and the content of fresh memory; bytes of 0x5a make large
# numbers of any dtype, and no NaN.

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
