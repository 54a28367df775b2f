"""The chain of a failure as links, back to its origin; its kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shrinkfx.findings.chain import Chain, Step
from shrinkfx.findings.code import Quoted, find_quoted_lines, likeliest_first, text_of
from shrinkfx.findings.compiling import StopPoint
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.record import Explanation
from shrinkfx.findings.values import WrongValue, describe_error
from shrinkfx.report.page.record import Source


@dataclass(frozen=True)
class Link:
    """One link of the chain.

    Attributes:
        what: a word or two: ``kernel``, ``index``.
        text: at most a sentence.
        code: text in a monospaced font.
        value: the value of the code in the failing run, or ''.
        more: lines in smaller print.
    """

    what: str
    text: str = ""
    code: str = ""
    value: str = ""
    more: tuple[str, ...] = ()


def list_links(explanation: Explanation) -> tuple[Link, ...]:
    """Return the known links, that of the failure first."""
    found: list[Link] = []
    if explanation.compile_error is not None:
        found += _of_halted(explanation.compile_error)
    if explanation.chain is not None:
        found += _of_chain(explanation.chain)
    if explanation.values is not None:
        found += _of_values(explanation.values)
    if explanation.culprits:
        one = "one of these" if len(explanation.culprits) > 1 else ""
        found.append(Link("at fault", one, more=_named(explanation.culprits)))
    return tuple(found)


def _named(operators: Sequence[Operator]) -> tuple[str, ...]:
    return tuple(map(str, operators))


def _launch(number: int, of: int) -> str:
    return f"launch {number} of {of}" if number else ""


def _of_line(code: Quoted) -> Iterator[Link]:
    at_fault = (line.text.strip() for line in code if line.at_fault)
    if text := next(at_fault, ""):
        yield Link("line", code=text)


def _of_chain(chain: Chain) -> Iterator[Link]:
    if chain.refusal is not None:
        refusal = chain.refusal
        text = f"{refusal.what}: expected {refusal.expected}, got {refusal.actual}"
        sizes = tuple(map(str, refusal.symbols))
        which = (str(refusal.input),) if refusal.input is not None else ()
        yield Link("rejected", text, more=(*which, *sizes))
    yield from _of_line(chain.code)
    if chain.kernel:
        launch = _launch(chain.launch, chain.launches)
        computes = tuple(f"computes {name}" for name in _named(chain.fused))
        yield Link("kernel", launch, chain.kernel, more=computes)
    yield from _of_access(chain)
    if chain.index:
        limit = chain.limit
        text = f"must be below {limit.code}" if limit else ""
        if limit and limit.value is not None and str(limit.value) != limit.code:
            text += f" = {limit.value}"
        sizes = tuple(map(str, limit.symbols)) if limit else ()
        yield Link("index", text, chain.index, _known(chain.value), sizes)
    for step in reversed(chain.steps):
        yield _of_step(step)
    for size in chain.sizes:
        yield Link("size", str(size))
    for layout in chain.inputs:
        yield Link("input", str(layout))


def _known(value: int | None) -> str:
    return "" if value is None else str(value)


def _of_step(step: Step) -> Link:
    reads = (f"reads {step.reads}",) if step.reads is not None else ()
    written = tuple(f"written for {name}" for name in _named(step.operators))
    return Link("computed", "", step.code, _known(step.value), (*reads, *written))


def _of_access(chain: Chain) -> Iterator[Link]:
    access = chain.access
    if access is None:
        return
    what = access.does or "access"
    where = f"through {access.parameter}" if access.parameter else ""
    there = ""
    if access.offset is not None and access.elements is not None:
        there = f"to element {access.offset} of {access.elements}"
    more = []
    if access.argument is not None:
        more.append(str(access.argument))
        if access.argument.real_shape:
            more.append(f"actual shape {[*access.argument.real_shape]}")
    if access.lanes:
        more.append(f"in {access.lanes} lanes of program {access.program}")
    yield Link(what, " ".join(filter(None, (where, there))), more=tuple(more))


def _of_values(values: WrongValue) -> Iterator[Link]:
    wrong = values.wrong
    if wrong is None:
        return
    yield Link("wrong value", describe_error(wrong, "differ"), values.value)
    if not wrong.metadata:
        place = f"at {[*wrong.first]}"
        text = f"{place}: eager gives {wrong.expected}"
        yield Link("first", text, value=wrong.got)
    if values.kernel:
        launch = _launch(values.launch, values.launches)
        agreement = "its inputs agree with eager" if values.agrees else ""
        shown = tuple(f"shown by {name}" for name in values.shown_by)
        text = ", ".join(filter(None, (launch, agreement)))
        yield Link("kernel", text, values.kernel, more=shown)


def _of_halted(stop: StopPoint) -> Iterator[Link]:
    if not stop.doing:
        return
    yield Link("stopped at", stop.doing, more=(stop.message,) if stop.message else ())
    if stop.place:
        yield Link("raised in", code=stop.place)
    yield from _of_line(stop.code)
    if stop.kernel:
        before = "before its launch" if stop.before else ""
        launch = _launch(stop.launch, stop.launches)
        text = ", ".join(filter(None, (launch, before)))
        yield Link("kernel", text, stop.kernel)


def find_failing_source(
    explanation: Explanation, files: Mapping[str, str]
) -> Source | None:
    """Return the file with the quoted lines, or only these if no file was kept.

    Args:
        files: texts of generated code, by file name.
    """
    parts = explanation.chain, explanation.compile_error
    part = next((part for part in parts if part is not None and part.code), None)
    if part is None:
        return _find_kernel_source(explanation, files)
    found = find_quoted_lines(part.code, part.kernel, files)
    name, quoted = found or ("", part.code)
    marked = next((line.number for line in quoted if line.at_fault), 0)
    if found:
        return Source(name, tuple(files[name].splitlines()), marked=marked)
    texts = tuple(line.text for line in quoted)
    counted_in = text_of(part.file)
    return Source("", texts, quoted[0].number, marked, counted_in)


def _find_kernel_source(
    explanation: Explanation, files: Mapping[str, str]
) -> Source | None:
    """Return the file of a kernel without a known failing line."""
    parts = explanation.values, explanation.chain, explanation.compile_error
    kernel = next((part.kernel for part in parts if part and part.kernel), "")
    if not kernel:
        return None
    for name in likeliest_first(files, kernel):
        lines = files[name].splitlines()
        heads = (i for i, line in enumerate(lines, 1) if f"{kernel}(" in line)
        if head := next(heads, 0):
            return Source(name, tuple(lines), marked=head)
    return None
