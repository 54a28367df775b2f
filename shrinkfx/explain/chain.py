"""Follow a kernel's failure to its cause, with one instrumented check."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from shrinkfx.explain.access import access_chain, assertion_chain
from shrinkfx.explain.compiled_view import CompiledView, KernelLog
from shrinkfx.explain.index import index_chain
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.readers.asan import MemoryReport
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.findings.chain import Chain, InputRejection, Layout
from shrinkfx.program.sizes import holds, names_in
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.compiled_program_view import REASON_FILE, Anatomy
from shrinkfx.system import scratch

_KINDS = {Kind.ASSERT, Kind.IMA, Kind.CRASH, Kind.CHECK_INPUTS}


_NOTHING = "the instrumented run recorded nothing"


def chain(reduced: ReducedProgram, memory: MemoryReport | None = None) -> Chain | None:
    """Follow the failure of a kernel to its cause; return None for other failures.

    Args:
        memory: the report of AddressSanitizer, or None.
    """
    if not _is_of_a_kernel(reduced.target):
        return None
    with scratch.make_scratch_folder("anatomy") as home:
        folder = Path(home)
        ending = _run_instrumented(reduced, folder)
        if ending is None or not reduced.fails(ending):
            return _unknown(reduced.why_not(ending))
        view = read_compiled_view(reduced, folder)
    if isinstance(view, str):
        return _unknown(view)
    return _followed(reduced, view, ending, memory)


def _unknown(why: str) -> Chain:
    return Chain(unknown=(f"the structure of the compiled program: {why}",))


def _run_instrumented(reduced: ReducedProgram, folder: Path) -> Ending | None:
    """Run with the fast build, or with the stock build if that does not fail."""
    path = str(folder)
    ending = reduced.run_recorded(folder, compiled_view=path, build=Build.FAST)
    used_stock_build = not reduced.client.builds.pay
    if reduced.is_conclusive(ending) or used_stock_build:
        return ending
    return reduced.run_recorded(folder, compiled_view=path, build=Build.STOCK) or ending


def _is_of_a_kernel(target: Signature) -> bool:
    if target.kind in (Kind.IMA, Kind.ASSERT):
        return True  # also in compilation, where kernels are benchmarked
    return target.stage is Stage.RUN and target.kind in _KINDS


def read_compiled_view(reduced: ReducedProgram, folder: Path) -> CompiledView | str:
    """Read the compiled-program view that a worker has written, or why it has not."""
    view_file, log_file = folder / "anatomy.json", folder / "telling"
    if not view_file.exists():
        reason = folder / REASON_FILE
        return reason.read_text() if reason.exists() else _NOTHING
    recorded = Anatomy.from_line(view_file.read_text())
    log = log_file.read_text(errors="replace") if log_file.exists() else ""
    view = CompiledView(recorded, reduced.candidate, KernelLog.read(log))
    calls = reduced.client.options.calls
    if calls > 1:  # a value outside eager's range may come from a wrong state
        recorded = replace(recorded, eager=())
        if view.call() != calls:  # eager's values are those of the last call
            recorded = replace(recorded, real=(), states=())
    return replace(view, recorded=recorded)


def _followed(
    reduced: ReducedProgram,
    view: CompiledView,
    ending: Ending,
    memory: MemoryReport | None,
) -> Chain:
    target, text = reduced.target, ending.log
    if ending.raised is not None:
        text = f"{ending.raised.message}\n{text}"
    eager_fails = not reduced.client.options.reference
    if target.kind is Kind.CHECK_INPUTS:
        return refusal_chain(view, text, eager_fails)
    stray = view.recorded.out_of_bounds
    if target.kind is Kind.ASSERT and "index out of bounds" in target.detail:
        found = index_chain(view, text, eager_fails)
        if found.kernel or stray is None:
            return found
    if target.kind is Kind.ASSERT and stray is None:
        return assertion_chain(view, target.text, eager_fails)
    if target.kind is Kind.ASSERT or target.detail == MEMORY_FAULT or stray:
        return access_chain(view, memory, eager_fails)
    return Chain(eager_fails=eager_fails, unknown=("which kernel: no trace",))


_REFUSED = re.compile(
    r"input_handles\[(?P<input>\d+)\]: (?P<what>[a-z ]+?)(?: at (?P<dim>\d+))?,\s*"
    r"expected(?: it)?(?: to be)?:? ?(?P<expected>[^\n]*?),? but got: (?P<given>[^\n]*)"
)
_WORDS = re.compile(r"[A-Za-z_]\w*")


def refusal_chain(view: CompiledView, text: str, eager_fails: bool) -> Chain:
    """Describe which input is rejected, why, and what declares its size.

    Args:
        text: the output of the run.
    """
    match = _REFUSED.search(text)
    if match is None:
        why = ("which input: the error does not name it",)
        return Chain(eager_fails=eager_fails, unknown=why)
    inputs = [i for i in view.recorded.inputs if i.role == "input"]
    place = int(match["input"])
    layout = view.layout_of(inputs[place]) if place < len(inputs) else None
    dim = int(match["dim"]) if match["dim"] else None
    size = layout.shape[dim] if layout and dim is not None and _is_size(match) else ""
    refusal = InputRejection(
        what=match["what"],
        input=layout,
        dim=dim,
        expected=match["expected"].strip(),
        actual=match["given"].strip(),
        symbols=tuple(view.symbols(_WORDS.findall(size))),
    )
    sentences, unknown = _describe_guards(refusal, view.recorded.guards_unknown)
    return Chain(
        eager_fails=eager_fails,
        refusal=refusal,
        inputs=(layout,) if layout else (),
        cause=(*_describe_rejection(refusal, layout), *sentences),
        unknown=unknown if _is_size(match) else (),
    )


_LINE = "which line of the model requires this size"
_NO_LINE = f"{_LINE}: torch.export records guards without their lines"
_FIXED = (
    f"{_LINE}: torch.export records a fixed size as a number, and not whether the "
    "model fixed it"
)
_NO_GUARD = "The program has no guard of the model on this size."
_SHOWN = 2


def _describe_guards(
    refusal: InputRejection, guards_unknown: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return sentences about guards on the size, and what is unknown about them.

    A guard exists if the model, as export traced it, compared a size or called
    ``torch._check``. Guards that do not hold for the actual sizes take precedence.
    """
    if not refusal.symbols:
        return (), (_FIXED,)
    if guards_unknown:
        return (), (f"{_LINE}, if one does: {guards_unknown}",)
    guards = list(dict.fromkeys(g for s in refusal.symbols for g in s.guards))
    if not guards:
        return (_NO_GUARD,), ()
    sizes = {s.name: s.value for s in refusal.symbols if s.value is not None}
    evaluable = [guard for guard in guards if names_in(guard) <= sizes.keys()]
    broken = [guard for guard in evaluable if not holds(guard, sizes)]
    template = (
        "The model requires {}" if broken else "The model's guards on this size are {}"
    )
    shown = ", ".join((broken or guards)[:_SHOWN])
    return (f"{template.format(shown)}: torch.export recorded this.",), (_NO_LINE,)


def _is_size(found: re.Match[str]) -> bool:
    return "dim value" in found["what"]


def _describe_rejection(
    refusal: InputRejection, layout: Layout | None
) -> tuple[str, ...]:
    what = f"{layout.role} {layout.name}".strip() if layout else "an input"
    where = "" if refusal.dim is None else f", dim {refusal.dim}"
    first = (
        f"The compiled program rejects {what}{where}: {refusal.what}, expected "
        f"{refusal.expected}, got {refusal.actual}."
    )
    second = f"The program was exported for {refusal.expected} only."
    if refusal.symbols:
        declared = "; ".join(symbol.declaration for symbol in refusal.symbols)
        second = f"The exported program declares {declared}."
    return first, second
