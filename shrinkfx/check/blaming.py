"""Ask a failing program which of its operators the failure comes from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from shrinkfx.check.oracle import RUNS_PER_CHILD, Compiler
from shrinkfx.failure.blame import Evidence, suspects
from shrinkfx.failure.classify import observe
from shrinkfx.failure.signature import Signature, Stage
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.messages import Ending, Task

_PRINTER = {"aot_inductor.debug_intermediate_value_printer": "3"}
"""Prints each launch before and after, and no value."""

_COPIES = 8
"""What a value takes that is returned: compiled, eager twice, and in float64."""


def interrogate(
    compiler: Compiler,
    whole: Candidate,
    target: Signature,
    known: Evidence,
    note: Callable[[str], None],
) -> Evidence:
    """Compile once more where what is known names no operator, thrice at most.

    A wrong result is traced to the first wrong value, a death without a word to the
    kernel that was running.
    """
    if target.stage is Stage.COMPARE:
        return _with_values(compiler, whole, target, known, note)
    has_names = bool(suspects(known, whole.skeleton, target))
    if has_names or target.stage is not Stage.RUN or "probe" in compiler.options:
        return known
    note("blame: running it once more, with each launch of a kernel printed")
    inductor = {**compiler.options.get("inductor", {}), **_PRINTER}
    ending = _again(compiler, whole, inductor=inductor)
    shows = target.admits(observe(ending).signature)
    return replace(known, printed=ending.log) if shows else known


def _again(compiler: Compiler, whole: Candidate, **arguments: object) -> Ending:
    """Run it once more; a flaky one until it fails, or as often as a child may."""
    often = compiler.with_options(runs=RUNS_PER_CHILD, **arguments)
    return often.ask(Task.CANDIDATE, candidate=whole.to_json())


def _with_values(
    compiler: Compiler,
    whole: Candidate,
    target: Signature,
    known: Evidence,
    note: Callable[[str], None],
) -> Evidence:
    """Have it return all that it computes, and see what differs from eager's.

    Returned values are not fused away, which may hide the failure; then fewer are.
    """
    skeleton = whole.skeleton
    values = [v for name in skeleton.operators for v in skeleton.values(name)]
    for taps in _rows(values):
        size = sum(skeleton.node(value).nbytes for value in taps)
        if size * _COPIES > compiler.limits.max_rss_bytes:
            continue
        note(f"blame: comparing {len(taps)} values that it computes with eager's")
        ending = _again(compiler, whole, taps=taps)
        differing = ending.answer.get("differing", ())
        if differing and target.admits(observe(ending).signature):
            seen = dict.fromkeys([*taps, *skeleton.outputs])
            agreeing = tuple(v for v in seen if v not in differing)
            return replace(known, differing=tuple(differing), agreeing=agreeing)
    return known


def _rows(values: list[str]) -> Iterator[list[str]]:
    """List what to return: all, then one of several, then those half-way between.

    Where few values hide the failure, one of them is amid the operators at fault.
    Those are few, so the other row hardly meets them.
    """
    yield values
    step = math.isqrt(len(values))
    if step > 1:
        yield values[::step]
        yield values[step // 2 :: step]
