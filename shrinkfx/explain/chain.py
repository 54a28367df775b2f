"""Follow a kernel's failure to its cause, with one instrumented check.

The failure is a rejected input, an out-of-bounds access, an assertion or a rejected
index.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

from shrinkfx.explain.compiled_view import (
    CompiledView,
    FailingKernel,
    KernelLog,
    find_line_operators,
    quote_lines,
    with_views,
)
from shrinkfx.explain.reduced_program import ReducedProgram, find_dependencies
from shrinkfx.failure.readers.generated import (
    COPY,
    Assignment,
    IndexCheck,
    pointers_in,
)
from shrinkfx.failure.readers.memory import MemoryReport
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.findings.chain import (
    Access,
    Chain,
    InputRejection,
    Layout,
    Limit,
    SizeSymbol,
    Step,
)
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.values import join_operators
from shrinkfx.program.listing.tensor_specs import itemsize
from shrinkfx.program.sizes import holds, names_in
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Build, Guard
from shrinkfx.protocol.compiled_program_view import (
    REASON_FILE,
    Anatomy,
    StrayAccess,
    describe_index,
)
from shrinkfx.system import scratch

_KINDS = {Kind.ASSERT, Kind.IMA, Kind.CRASH, Kind.CHECK_INPUTS}


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
        view = _read_compiled_view(reduced, folder)
    if isinstance(view, str):
        return _unknown(view)
    raised = f"{ending.raised.message}\n" if ending.raised else ""
    return follow_failure(view, reduced.target, f"{raised}{ending.log}", memory)


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


def _read_compiled_view(reduced: ReducedProgram, folder: Path) -> CompiledView | str:
    """Read the compiled-program view that a worker has written, or why it has not."""
    view_file, log_file = folder / "anatomy.json", folder / "telling"
    if not view_file.exists():
        reason = folder / REASON_FILE
        return reason.read_text() if reason.exists() else reduced.NOTHING_RECORDED
    recorded = Anatomy.from_line(view_file.read_text())
    log = log_file.read_text(errors="replace") if log_file.exists() else ""
    options = reduced.client.options
    if options.calls > 1:
        # Eager's values are those of the first call. In a later one, a value outside
        # eager's range may come from a buffer.
        recorded = replace(recorded, eager=())
    log_of_kernels, eager_fails = KernelLog.read(log), not options.reference
    guarded = options.guard_pages is not Guard.OFF
    return CompiledView(
        recorded, reduced.candidate, log_of_kernels, eager_fails, guarded
    )


def follow_failure(
    view: CompiledView, target: Signature, text: str, memory: MemoryReport | None = None
) -> Chain:
    """Follow a failure to its cause.

    Args:
        text: the output of the run.
        memory: the report of AddressSanitizer, or None.
    """
    found = _follow(view, target, text, memory)
    return replace(found, eager_fails=view.eager_fails)


def _follow(
    view: CompiledView, target: Signature, text: str, memory: MemoryReport | None
) -> Chain:
    if target.kind is Kind.CHECK_INPUTS:
        return _follow_rejection(view, text)
    is_assertion, stray = target.kind is Kind.ASSERT, view.recorded.out_of_bounds
    if is_assertion and "index out of bounds" in target.detail:
        found = index_chain(view, text)
        if found.kernel or stray is None:
            return found
    if stray is not None:
        return _follow_access(view, stray)
    if is_assertion:
        return _follow_assertion(view, target.text)
    if target.detail == MEMORY_FAULT:
        return _follow_crash(view, memory)
    return Chain(unknown=("which kernel: no trace",))


_REFUSED = re.compile(
    r"input_handles\[(?P<input>\d+)\]: (?P<what>[a-z ]+?)(?: at (?P<dim>\d+))?,\s*"
    r"expected(?: it)?(?: to be)?:? ?(?P<expected>[^\n]*?),? but got: (?P<given>[^\n]*)"
)
_WORDS = re.compile(r"[A-Za-z_]\w*")


def _follow_rejection(view: CompiledView, text: str) -> Chain:
    """Describe which input is rejected, why, and what declares its size."""
    match = _REFUSED.search(text)
    if match is None:
        return Chain(unknown=("which input: the error does not name it",))
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
_NO_GUARD = "The model itself adds no guard on this size."
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
    what = layout.named if layout else "an input"
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


# Explain an out-of-bounds access, or a crash in a C++ kernel.
#
# The result has the line, the argument, the offset or the address, and the culprit.

_TIMED = "When AOTInductor benchmarks kernels with generated arguments, "


def _follow_access(view: CompiledView, finding: StrayAccess) -> Chain:
    """Explain an access that the interpreter has detected."""
    failing = view.locate(finding.kernel, finding.text)
    fused, by_line = failing.chain.fused, _find_operators(view, finding, failing)
    argument = _find_argument(view, finding, failing)
    if argument is not None and finding.user:
        others = tuple(maker for maker in argument.made_by if maker not in by_line)
        argument = replace(argument, made_by=others or argument.made_by)
    culprits = by_line
    if finding.fault == "misaligned":
        culprits = view.find_producers(finding.role) or by_line
    if not finding.user and finding.fault != "assert" and culprits == by_line:
        culprits = with_views(view, fused, by_line)
    culprits = culprits or fused
    sentence = _describe_access(finding, culprits, argument)
    if finding.made_up:
        sentence = f"{_TIMED}{sentence[0].lower()}{sentence[1:]}"
    has_size = bool(finding.item_bytes)
    return replace(
        failing.chain,
        grid=finding.grid,
        # For a user's kernel, Inductor lists neighboring operators too.
        fused=by_line if finding.user else fused,
        code=quote_lines(failing.code, finding.line) if finding.line >= 0 else (),
        access=Access(
            does=finding.fault if finding.fault in _VERBS else "",
            parameter=finding.argument,
            argument=argument,
            offset=finding.offset if has_size else None,
            elements=finding.elements if has_size else None,
            item_bytes=finding.item_bytes,
            lanes=finding.lanes,
            program=finding.program,
        ),
        inputs=(argument,) if argument and argument.role != "buffer" else (),
        culprits=culprits,
        dies=culprits,
        cause=(sentence,),
    )


def _find_argument(
    view: CompiledView, finding: StrayAccess, failing: FailingKernel
) -> Layout | None:
    """Return the accessed argument, with its actual layout if that is known."""
    name = failing.passed.get(finding.argument, "")
    argument = view.layout(view.read(name) if finding.fault != "store" else name)
    if argument is None or not finding.shape:
        return argument
    return replace(
        argument,
        real_shape=finding.shape,
        real_stride=finding.stride,
        made_by=view.find_producers(finding.role) or argument.made_by,
    )


def _find_operators(
    view: CompiledView, finding: StrayAccess, failing: FailingKernel
) -> tuple[Operator, ...]:
    """Return the operator of the failing line, or of the user's kernel."""
    if finding.user:
        left, launch = view.operators(view.left), failing.launch
        custom = [one for one in left if not one.operator.startswith("aten.")]
        return tuple([o for o in custom if launch and o.name in launch.nodes] or custom)
    return find_line_operators(view, failing, finding.line) if finding.line >= 0 else ()


_VERBS = {"load": "loads from", "store": "stores to", "atomic": "atomically changes"}


def _describe_access(
    finding: StrayAccess, ops: tuple[Operator, ...], argument: Layout | None
) -> str:
    names = join_operators(ops) or "an operator"
    kernel = f"Kernel {finding.kernel}, which computes {names},"
    relation = "was generated for" if finding.made_up and argument else "is"
    what = f"{finding.argument} {relation} {argument or finding.role}"
    if finding.fault == "misaligned":
        parameter = f"Argument {finding.argument} of kernel {finding.kernel}"
        return f"{parameter} is {finding.message}. {what}."
    if finding.fault == "assert":
        return f"{kernel} fails an assertion: {finding.message}."
    index = describe_index(finding.offset, finding.elements)
    action = f"{_VERBS[finding.fault]} {finding.argument} at {index}"
    lanes = f"{finding.lanes} lanes" if finding.lanes > 1 else "one lane"
    where = f"in {lanes} of program {finding.program} of the grid {finding.grid}"
    return f"{kernel} {action}. {what}. The access is invalid {where}."


_NEAR_BYTES = 1 << 24
"""Maximum distance in bytes of an address from the argument it belongs to."""

_PAGE_BYTES = 1 << 12

_CUT = "which kernel: the program has too many launches to trace"


def _follow_crash(view: CompiledView, memory: MemoryReport | None) -> Chain:
    """Describe the kernel that was running when the process died, and its arguments."""
    log = view.kernel_log
    if log.cut:
        return Chain(unknown=(_CUT,))
    if log.running is None:
        return _outside(view, memory)
    name, arguments = log.launches[log.running]
    if (failing := _find_running(view)) is None:
        return Chain(kernel=name, unknown=("the kernel's source: it was not kept",))
    code, chain = failing.code, failing.chain
    is_known = log.at is not None and log.at[0] == name and log.at[1] < len(code.lines)
    line = log.at[1] if log.at and is_known else None
    among = pointers_in(code.lines[line]) if line is not None else ()
    access = _nearest(view, arguments, failing.passed, among)
    if among and access and access.parameter not in (*among, ""):
        line = None  # the compiler has moved the access out of it
    if line is None:
        line = _find_line(failing, access, memory)
    chain = replace(chain, access=access)
    operators: tuple[Operator, ...] = ()
    if line is None:
        why = "which line crashes: no report of AddressSanitizer names it"
        chain = replace(chain, unknown=(why,))
    else:
        operators = find_line_operators(view, failing, line)
        culprits = with_views(view, chain.fused, operators) or chain.fused
        chain = replace(chain, code=quote_lines(code, line), culprits=culprits)
    cause = _describe_crash(chain, log.fault, is_exact=bool(operators))
    return replace(chain, cause=(cause,), dies=chain.culprits)


def _follow_assertion(view: CompiledView, message: str) -> Chain:
    """Find the kernel that was running when an assertion other than an index's failed.

    Args:
        message: the text of the assertion, to find its line.
    """
    if view.kernel_log.cut:
        return Chain(unknown=(_CUT,))
    if (failing := _find_running(view)) is None:
        return Chain()  # often the wrapper fails, and no kernel
    code, chain = failing.code, failing.chain
    lines = [n for n, text in enumerate(code.lines) if message and message in text]
    # A loop and its tail may both contain it.
    groups = {find_line_operators(view, failing, n) for n in lines}
    operators = next(iter(groups)) if len(groups) == 1 else ()
    chain = replace(
        chain,
        code=quote_lines(code, lines[0]) if len(lines) == 1 else (),
        culprits=operators or chain.fused,
    )
    where = _where(chain, is_exact=bool(operators))
    return replace(chain, cause=(f"{where} fails an assertion: {message}.",))


def _find_running(view: CompiledView) -> FailingKernel | None:
    """Return the kernel that was running, if its text and its launch are known."""
    running = view.kernel_log.running
    name = "" if running is None else view.kernel_log.launches[running][0]
    failing = view.locate(name)
    return failing if failing.kernel.text and failing.launch else None


def _outside(view: CompiledView, memory: MemoryReport | None) -> Chain:
    """Describe how far a run came that died outside the generated kernels."""
    last = view.kernel_log.launches[-1][0] if view.kernel_log.launches else ""
    progress = f"after {last}" if last else "before the first kernel"
    where = f"; under AddressSanitizer: {memory}" if memory else ""
    why = (
        f"which line crashes: it is outside of the generated kernels, {progress}{where}"
    )
    return Chain(launches=len(view.recorded.launches), unknown=(why,))


def _nearest(
    view: CompiledView,
    arguments: dict[str, str],
    passed: dict[str, str],
    among: tuple[str, ...],
) -> Access | None:
    """Return the argument that an address belongs to, the nearest one.

    Args:
        among: the pointer parameters in the line that failed, or that follows it; empty
            if the line is unknown. With guard pages around each tensor, an argument
            within a page of the address is right if those of the line are farther.
    """
    address = view.kernel_log.fault
    if not address.startswith("0x"):
        return None
    at, sizes = int(address, 16), {s.name: s.value for s in view.recorded.symbols}
    found: list[tuple[bool, bool, float, Access]] = []
    for parameter, value in arguments.items():
        # A buffer written in place has the memory of the buffer it replaces.
        layout = view.layout(view.read(passed.get(parameter, "")))
        if not value.startswith("0x") or layout is None:
            continue
        item = itemsize(layout.dtype)
        elements = elements_of(layout, sizes)
        offset = at - int(value, 16)
        distance = max(-offset, offset - (elements or 0) * item, 0)
        access = Access("", parameter, layout, offset // item, elements, item)
        is_other = bool(among) and parameter not in among
        if not is_other or (view.guarded and distance <= _PAGE_BYTES):
            found.append((distance > _PAGE_BYTES, is_other, distance, access))
    *_, least, access = min(found, key=itemgetter(0, 1, 2), default=_NO_ARGUMENT)
    if least > (_NEAR_BYTES if among else _PAGE_BYTES):
        # For a null pointer, an index says nothing.
        away = access.offset if least < at / 2 else None
        access = Access("", "", None, away, None)
    return replace(access, address=address)


_NO_ARGUMENT = (True, True, math.inf, Access("", "", None, None, None))


def elements_of(layout: Layout, sizes: dict[str, int | None]) -> int | None:
    """Count the elements of a dense tensor of this shape; None if a size is unknown."""
    if layout.real_shape:
        return math.prod(layout.real_shape)
    found = [int(s) if s.isdigit() else sizes.get(s) for s in layout.shape]
    known = [size for size in found if size is not None]
    return math.prod(known) if len(known) == len(found) else None


def _find_line(
    failing: FailingKernel, access: Access | None, memory: MemoryReport | None
) -> int | None:
    """Return the failing line from AddressSanitizer, or the only candidate."""
    kernel, code = failing.kernel, failing.code
    if memory and memory.kernel == kernel.name and memory.line and kernel.first_line:
        line = memory.line - kernel.first_line
        return line if 0 <= line < len(code.lines) else None
    if access is None or not access.parameter:
        return None
    word = re.compile(rf"\b{access.parameter}\b(?! *[,)])")
    first = next((n for n, text in enumerate(code.lines) if text.startswith("{")), 0)
    lines = [n for n in range(first, len(code.lines)) if word.search(code.lines[n])]
    return lines[0] if len(lines) == 1 else None


def _where(chain: Chain, *, is_exact: bool) -> str:
    names = join_operators(chain.culprits) or "unknown operators"
    if is_exact:
        return f"Code for {names} in kernel {chain.kernel}"
    return f"Kernel {chain.kernel}, which computes {names},"


def _describe_crash(chain: Chain, address: str, *, is_exact: bool) -> str:
    where, access = _where(chain, is_exact=is_exact), chain.access
    if access is None or not address:
        return f"{where} crashes the process; why is not known."
    if access.argument is None:
        far = f"{where} accesses address {address}, which is not near any argument"
        if access.offset is None:
            return f"{far}."
        return f"{far}: it would be index {access.offset:,} of the nearest one."
    index = f"index {access.offset}"
    if access.offset is not None and access.elements is not None:
        index = describe_index(access.offset, access.elements)
        index += "" if access.argument.real_shape else " (the declared number)"
    accesses = f"crashes when it accesses {access.parameter} at {index}"
    return f"{where} {accesses}: {access.argument}."


# Explain a rejected index: its value, its bound, and the operators that made them.

_MESSAGE = re.compile(r"index out of bounds: ([^\n\"\[]+)")


@dataclass(frozen=True)
class _RejectedIndex:
    """An index check that failed, and the values in the kernel."""

    failing: FailingKernel
    check: IndexCheck
    values: dict[str, int]


def index_chain(view: CompiledView, text: str) -> Chain:
    """Follow a rejected index to its cause.

    Args:
        text: the output of the run.
    """
    rejected = _find_rejected_index(view, text)
    if rejected is None:
        why = "which line rejected the index: the run did not report it"
        return Chain(unknown=(why,))
    check, failing = rejected.check, rejected.failing
    history = failing.code.history(check.index, check.line)
    steps = tuple(_step(view, rejected, step) for step in history)
    bound = check.upper or check.lower
    limit_value = rejected.values.get(bound.replace(" ", ""))
    limit = view.limit(bound, failing.passed, limit_value)
    checked_by = find_line_operators(view, failing, check.line)
    value, finding = rejected.values.get(check.index), view.recorded.out_of_bounds
    chain = replace(
        failing.chain,
        grid=finding.grid if finding else (),
        code=quote_lines(failing.code, check.line),
        index=check.index,
        value=value,
        limit=limit,
        steps=steps,
        sizes=_sizes(view, steps, failing.passed, limit),
        inputs=_inputs(view, steps, limit),
        unknown=("the index value: the run did not report it",) * (value is None),
    )
    indexed = _indexed(view, rejected, history)
    culprits, evidence = find_culprits(view, chain, checked_by)
    sentences = _describe_index(chain, checked_by, indexed)
    return replace(
        chain,
        culprits=culprits,
        dies=checked_by or chain.fused,
        cause=(*sentences, evidence) if evidence else sentences,
    )


def _find_rejected_index(view: CompiledView, text: str) -> _RejectedIndex | None:
    """Return the check that failed: as reported, or the only one with its message."""
    finding = view.recorded.out_of_bounds
    if finding is not None and finding.text and finding.line >= 0:
        failing = view.locate(finding.kernel, finding.text)
        pairs = (pair.split("=", 1) for pair in finding.values)
        values = {name: int(value) for name, value in pairs}
        return _find_check(failing, finding.line, values)
    if view.kernel_log.refused is not None:
        name, line, values = view.kernel_log.refused
        return _find_check(view.locate(name), line, values)
    message = _MESSAGE.search(text)
    matching = [
        _RejectedIndex(failing, check, {})
        for kernel in view.recorded.kernels
        if message and kernel.name in text
        for failing in [view.locate(kernel.name)]
        for check in failing.code.checks()
        if check.text == message[1].strip()
    ]
    return matching[0] if len(matching) == 1 else None


def _find_check(
    failing: FailingKernel, line: int, values: dict[str, int]
) -> _RejectedIndex | None:
    check = next((c for c in failing.code.checks() if c.line == line), None)
    return _RejectedIndex(failing, check, values) if check else None


def _step(view: CompiledView, rejected: _RejectedIndex, step: Assignment) -> Step:
    passed = rejected.failing.passed
    parameter = next((p for p in step.pointers if p in passed), "")
    return Step(
        code=f"{step.name} = {step.expression}",
        value=rejected.values.get(step.name),
        operators=find_line_operators(view, rejected.failing, step.line),
        parameter=parameter,
        reads=view.layout(view.read(passed[parameter])) if parameter else None,
    )


def _indexed(
    view: CompiledView, rejected: _RejectedIndex, history: Sequence[Assignment]
) -> Layout | None:
    """Return the tensor that the index is used on, from the lines after the check."""
    names = {rejected.check.index}
    for step in reversed(history):
        if step.name in names:  # a copy or a cast
            copied = COPY.findall(step.expression)
            names |= {variable or lane for variable, lane in copied}
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    passed, depth = rejected.failing.passed, 0
    for line in rejected.failing.code.lines[rejected.check.line + 1 :]:
        depth += line.count("{") - line.count("}")
        if depth < 0:
            break  # the variables are out of scope
        access = re.search(r"\b((?:in_out|in|out)_ptr\d+)\b(.*)", line)
        if access and word.search(access[2]) and access[1] in passed:
            return view.layout(passed[access[1]])
    return None


def _sizes(
    view: CompiledView, steps: Sequence[Step], passed: dict[str, str], limit: Limit
) -> tuple[SizeSymbol, ...]:
    """Return the sizes that the index itself is computed from."""
    words = [word for step in steps for word in re.findall(r"\bks\d+\b", step.code)]
    names = " ".join(passed.get(word, "") for word in words)
    found = view.symbols(dict.fromkeys(re.findall(r"\w+", names)))
    return tuple(size for size in found if size not in limit.symbols)


def _inputs(
    view: CompiledView, steps: Sequence[Step], limit: Limit
) -> tuple[Layout, ...]:
    """Return the inputs that the index and the bound come from."""
    read = [step.reads for step in steps if step.reads and not step.reads.made_in]
    carriers = {symbol.input for symbol in limit.symbols}
    named = {layout.name: layout for layout in read if layout.role != "buffer"}
    for entry in view.recorded.inputs:
        if entry.name in carriers:
            named.setdefault(entry.name, view.layout_of(entry))
    return tuple(named.values())


def _describe_index(
    chain: Chain,
    checked_by: tuple[Operator, ...],
    indexed: Layout | None,
) -> tuple[str, ...]:
    """Return sentences about the rejected index, its bound and their sources."""
    value = chain.index if chain.value is None else str(chain.value)
    limit = chain.limit
    assert limit is not None
    size = limit.code if limit.value is None else str(limit.value)
    where = f" in {join_operators(checked_by)}" if checked_by else ""
    of = f" of {indexed.named}" if indexed else ""
    bounds = f"Index {value} is out of bounds for size {size}"
    first = f"{bounds}{where}{of}, in kernel {chain.kernel}."
    made = [
        _locate(step.value, str(step.reads))
        for step in chain.steps
        if step.reads is not None
    ]
    parts = [f"The index comes from {'; '.join(dict.fromkeys(made))}"] if made else []
    if limit.symbols:
        parts.append(f"the size is {'; '.join(map(str, limit.symbols))}")
    second = "; ".join(parts)
    return (first, f"{second[0].upper()}{second[1:]}.") if second else (first,)


def find_culprits(
    view: CompiledView, chain: Chain, checked_by: tuple[Operator, ...]
) -> tuple[tuple[Operator, ...], str]:
    """Return the operators that made the index wrong, and a sentence with the evidence.

    In eager each index is in range. So a value outside eager's range was computed
    wrong, whichever operator uses it. The search has cut off all that it could, so
    operators before that value remain only if the failure needs them as well.
    """
    if view.eager_fails:
        return checked_by, _given(chain)
    user = checked_by[0] if len(checked_by) == 1 else None
    first = _first_out_of_range(view, chain, user)
    if first is not None:
        operator, value, (least, most) = first
        before = _left_before(view, operator)
        inputs = " or one of its inputs" if before else ""
        claim = f"{operator.operator}{inputs} is wrong"
        return (*before, operator), (
            f"In eager, all values of {operator} are within {least}..{most}; compiled "
            f"code computes {value}: {claim}."
        )
    loads = [step for step in chain.steps if step.reads is not None]
    if not loads and user and (folded := _folded_into(view, chain, user)):
        names = join_operators((*folded, user))
        return (*folded, user), (
            f"The index is {_formula(chain)}, a constant at these sizes, which the "
            f"compiler has computed: it comes from one of {names}."
        )
    if not loads and user:
        return (user, *_readers(view, chain, user)), (
            f"The index {_formula(chain)} does not depend on the values of a tensor: "
            f"the lowering of {user.operator} generates it."
        )
    if loads and user and _all_as_in_eager(view, chain, user):
        return checked_by, (
            "All values that the index is computed from are in eager's ranges: the "
            f"index arithmetic or the bound of {user.operator} is wrong."
        )
    read = [step.reads for step in loads if step.reads is not None]
    makers = [o for r in read for o in (*view.computed(r.name), *r.made_by)]
    makers += [o for step in chain.steps for o in step.operators]
    return tuple(dict.fromkeys([*makers, *checked_by])), ""


def _left_before(view: CompiledView, operator: Operator) -> tuple[Operator, ...]:
    """Return the operators of the reduced program that another one is computed from."""
    dependencies = find_dependencies(view.candidate, [operator.name])
    return view.operators([name for name in view.left if name in dependencies])


def _readers(view: CompiledView, chain: Chain, user: Operator) -> tuple[Operator, ...]:
    """Return non-pointwise operators of the kernel that read an operator's elements.

    The position at which such an operator reads is part of the index computation.
    """
    return tuple(
        operator
        for operator in chain.fused
        if user.name in find_dependencies(view.candidate, [operator.name])
        if operator.name not in view.candidate.replace  # simple ones are pointwise
        if not view.skeleton.node(operator.name).pointwise
    )


def _folded_into(
    view: CompiledView, chain: Chain, user: Operator
) -> tuple[Operator, ...]:
    """Return the operators whose values may be folded into a constant index.

    An index that depends on a loop position is the operator's own.
    """
    if not _CONSTANT.fullmatch(_formula(chain)):
        return ()
    dependencies = find_dependencies(view.candidate, [user.name])
    return tuple(one for one in chain.fused if one.name in dependencies)


_CONSTANT = re.compile(r"`[-\d\sL+*()]+`")


def _formula(chain: Chain) -> str:
    """Quote the code of an index: its last line that is not a copy."""
    codes = (step.code.partition(" = ")[2] for step in reversed(chain.steps))
    return next((f"`{code}`" for code in codes if not COPY.search(code)), "a constant")


def _given(chain: Chain) -> str:
    """Name the input whose value is the index, so that eager may reject it too."""
    loads = [step for step in chain.steps if step.reads is not None]
    read = loads[0].reads if len(loads) == 1 else None
    if read is None or read.role != "input":
        return ""
    place = _locate(loads[0].value, f"input {read.name}")
    return f"The index comes from {place}."


def _locate(value: int | None, place: str) -> str:
    return place if value is None else f"the value {value} in {place}"


def _first_out_of_range(
    view: CompiledView, chain: Chain, user: Operator | None
) -> tuple[Operator, int, tuple[int, int]] | None:
    """Return the first value, in program order, that is outside eager's range."""
    wrong: dict[Operator, int] = {}
    for operator, value in _values(view, chain, user).items():
        span = view.ranges.get(operator.name)
        if span and not span[0] <= value <= span[1]:
            wrong[operator] = value
    if not wrong:
        return None
    first = min(wrong, key=lambda operator: view.skeleton.order(operator.name))
    return first, wrong[first], view.ranges[first.name]


def _values(
    view: CompiledView, chain: Chain, user: Operator | None
) -> dict[Operator, int]:
    """Map operators to their results: values that were loaded or computed.

    Args:
        user: the operator of the index; its lines compute no result of its own.
    """
    found: dict[Operator, int] = {}
    outputs = _last_lines(view, chain.kernel)
    for step in chain.steps:
        if step.value is None:
            continue
        if step.reads is not None:
            found |= dict.fromkeys(view.result(step.reads.name), step.value)
        elif len(step.operators) == 1 and step.operators[0] != user:
            (operator,) = step.operators
            if step.code.startswith(f"{outputs.get(operator.name)} = "):
                found[operator] = step.value
    return found


def _last_lines(view: CompiledView, kernel: str) -> dict[str, str]:
    """Return the variable of each node's result, which its last line assigns.

    Other lines may be shared between nodes. A node with a line in a later kernel is
    omitted, because its result may be completed there.
    """
    kernels = view.recorded.kernels
    place = next((n for n, text in enumerate(kernels) if text.name == kernel), None)
    if place is None:
        return {}
    later = {n for text in kernels[place + 1 :] for o in text.origins for n in o.nodes}
    return {
        node: origin.variable
        for origin in kernels[place].origins
        if origin.variable
        for node in origin.nodes
        if node not in later
    }


def _all_as_in_eager(view: CompiledView, chain: Chain, user: Operator) -> bool:
    """Return whether all values behind an index are known to be in eager's ranges."""
    values = _values(view, chain, user)
    for step in chain.steps:
        if step.reads is not None:
            needed = view.result(step.reads.name)
            if not needed and step.reads.role == "buffer":
                return False
        else:
            needed = tuple(o for o in step.operators if o != user)
        for operator in needed:
            if operator not in values or operator.name not in view.ranges:
                return False
    return True  # the caller has excluded values outside eager's range
