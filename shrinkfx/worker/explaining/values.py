"""Find the wrong kernel: compare each value in memory with eager's operators.

A kernel's expected result is computed from its actual arguments, right or wrong. So a
kernel is wrong here only if it computes a wrong value itself, and not if it passes on
another kernel's error. Values that fusion keeps out of memory cannot be seen, so all
operators between two values in memory are checked as one.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from shrinkfx.protocol.kernel_values import Computed, KernelValues, Wrong
from shrinkfx.worker.eager.intermediates import (
    copy_value,
    mark_beyond_rounding,
    to_float64,
    widen,
    widen_dtype,
)
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.model import Inputs, flat_inputs
from shrinkfx.worker.private_api import codegen_api
from shrinkfx.worker.private_api.graph_api import pytree

_NOT_RETURNED = "what is returned is not what a kernel has left in memory"


class _Unknown(Exception):
    """The values cannot be judged; the message says why."""


@dataclass(frozen=True)
class _MemoryValue:
    """A node's value that was in memory: a kernel's output, or a result.

    Attributes:
        lay: inputs and weights as they were in memory before the launch.
        spoilt: why the kernel's arguments are unknown, or ''.
    """

    node: fx.Node
    value: torch.Tensor
    name: str
    kernel: str = ""
    launch: int = 0
    lay: Mapping[fx.Node, torch.Tensor] = field(default_factory=dict)
    spoilt: str = ""


def judge_values(recording: Recording, ran: ComparedRun) -> KernelValues:
    """Compare the values that a run left in memory with eager."""
    launches = tuple(launch.kernel for launch in recording.launches)
    report = KernelValues(launches=launches, call=ran.calls)
    try:
        return _compare_values(recording, ran, report)
    except (_Unknown, CannotRecompute) as error:
        return replace(report, unknown=str(error))
    except Exception as error:  # noqa: BLE001 - the check's own answer stands
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        return replace(
            report, unknown=f"it could not be compared with eager: {what:.200}"
        )


def _compare_values(
    recording: Recording, ran: ComparedRun, report: KernelValues
) -> KernelValues:
    """Compare all values; if none is wrong, compare again with relative tolerances.

    Raises:
        _Unknown: the run returned no result, or the graph does not fit the program.
    """
    results = recording.load_results()
    if recording.graph is None or results is None:
        raise _Unknown("the run returned no result")
    known = _compute_roots(recording.graph, ran)
    eager = run_deterministic(recording.graph.graph, known)
    seen = [
        *_list_memory_values(recording, known),
        *_list_returned_values(recording.graph.graph, results),
    ]
    memory = {s.node: s.value for s in seen if s.launch}
    values = {s.node: s.value for s in seen} | memory | known
    comparison = _Comparison(ran, values, memory, eager)
    computed = tuple(map(comparison.compare, seen))
    if any(value.wrong for value in computed):
        report = replace(report, computed=computed)
        return add_graph_results(report, recording.graph.graph, eager, ran)
    closer = replace(comparison, tiny=True)
    tiny = tuple(map(closer.compare, seen))
    if not any(value.wrong for value in tiny):
        tiny = tuple(map(replace(closer, signs=True).compare, seen))
    report = replace(report, computed=tiny, tiny=any(value.wrong for value in tiny))
    return add_graph_results(report, recording.graph.graph, eager, ran)


def _compute_roots(graph: fx.GraphModule, ran: ComparedRun) -> dict[fx.Node, Any]:
    """Return the values of the graph's inputs and weights before the last call.

    They are those of eager.

    Raises:
        _Unknown: the graph's inputs are not the program's.
    """
    placeholders = graph.graph.find_nodes(op="placeholder")
    for flat in (ran.inputs.flat(), flat_inputs(ran.exported, ran.inputs)):
        if len(flat) == len(placeholders):
            break
    else:
        raise _Unknown(f"the graph that Inductor lowers has {len(placeholders)} inputs")
    known = dict(zip(placeholders, map(copy_to_cpu, flat), strict=True))
    for node in graph.graph.find_nodes(op="get_attr"):
        try:
            known[node] = copy_to_cpu(_attribute(graph, str(node.target)))
        except AttributeError:
            raise _Unknown(f"Inductor has freed {node.target}") from None
    for _ in range(ran.calls - 1):
        _call_once(graph.graph, known)
    return known


def _attribute(graph: fx.GraphModule, name: str) -> Any:
    if hasattr(graph, name):  # AOTInductor has names with dots in them
        return getattr(graph, name)
    return functools.reduce(getattr, name.split("."), graph)


def _call_once(graph: fx.Graph, known: dict[fx.Node, Any]) -> None:
    """Update weights and buffers to their values after a call in eager.

    Raises:
        _Unknown: a value that is written back cannot be computed in eager.
    """
    values = run_graph(graph, known, seed=0)
    for node in graph.nodes:
        if node.target is torch.ops.aten.copy_.default and node.args[0] in known:
            if node not in values:
                raise _Unknown(f"{node.name} could not be run in eager")
            known[node.args[0]] = values[node]


def _list_memory_values(recording: Recording, roots: Known) -> Iterator[_MemoryValue]:
    """Yield the values that each launch left in memory, in the order of launches."""
    by_name = {node.name: node for node in roots}
    made: dict[str, tuple[int, torch.Tensor]] = {}
    for number, launch in enumerate(recording.launches):
        spoilt, lay = "", {}
        for name in launch.arguments:
            before = recording.load_argument_before(number, name)
            if before is not None and name in by_name:
                lay[by_name[name]] = before
            if name in made and before is not None:
                maker, value = made[name]
                kernel = recording.launches[maker].kernel
                if not is_identical(before, value):
                    spoilt = f"{name}, which {kernel} made, was overwritten before it"
        for name, node in launch.made:
            after = recording.load_result(number, name)
            if after is not None and not list_writers(node):
                made[name] = number, after
                facts = launch.kernel, number + 1, lay, spoilt
                yield _MemoryValue(node, after, name, *facts)


def _list_returned_values(
    graph: fx.Graph, results: Sequence[Any]
) -> Iterator[_MemoryValue]:
    """Yield the results that are tensors.

    Raises:
        _Unknown: the number of results is not that of the graph's outputs.
    """
    (output,) = graph.find_nodes(op="output")
    nodes = list(output.args[0])
    if len(nodes) != len(results):
        raise _Unknown(f"{len(results)} results of {len(nodes)} values")
    for place, (node, value) in enumerate(zip(nodes, results, strict=True)):
        if isinstance(node, fx.Node) and isinstance(value, torch.Tensor):
            yield _MemoryValue(node, value, f"result {place}")


@dataclass(frozen=True)
class _Comparison:
    """Compares single values with eager.

    Attributes:
        values: the known values by node: those in memory, results and inputs.
        memory: the values that kernels left in memory.
        eager: the values of an eager run of the whole graph, without random ones.
        tiny: look for errors that are large relative to a value but below the
            tolerances, in single operators.
        signs: look for zeros of the wrong sign, too.
    """

    ran: ComparedRun
    values: Known
    memory: Known
    eager: Mapping[fx.Node, Any]
    tiny: bool = False
    signs: bool = False

    def compare(self, seen: _MemoryValue) -> Computed:
        """Compare a value with what eager computes from the same operands."""
        values = {**self.values, **seen.lay}
        others = {n: v for n, v in values.items() if n is not seen.node}
        is_returned = seen.node in self.memory and not seen.launch
        part = [] if is_returned else list_nodes_between(seen.node, others)
        inputs = {n for at in part for n in at.all_input_nodes if n in others}
        names = dict.fromkeys(name for at in part for name in self.ran.origins(at))
        result = Computed(
            kernel=seen.kernel,
            launch=seen.launch,
            value=seen.name,
            operators=tuple(names),
            calls=list_called_operators(part),
            wrong_sources=tuple(
                sorted(n.name for n in inputs if self._is_not_eagers(n, others[n]))
            ),
            random_sources=tuple(sorted(n.name for n in inputs if n not in self.eager)),
            unknown=seen.spoilt,
        )
        if seen.spoilt:
            return result
        try:
            if is_returned:
                is_same = is_identical(seen.value, self.memory[seen.node])
                return result if is_same else replace(result, unknown=_NOT_RETURNED)
            result = replace(result, wrong=self._wrong(seen, others))
            return replace(result, amplified=self._amplified(seen, result))
        except CannotRecompute as error:
            return replace(result, unknown=str(error))

    def _amplified(self, seen: _MemoryValue, result: Computed) -> Wrong | None:
        if result.wrong or result.wrong_sources or result.random_sources:
            return None
        expected = self.eager.get(seen.node)
        wrong = measure_tensor_difference(seen.value, expected, self.ran.tolerance)
        return wrong if wrong and not wrong.metadata else None

    def _wrong(self, seen: _MemoryValue, others: Known) -> Wrong | None:
        """Measure how a value differs from eager's."""
        if seen.node.op != "call_function":  # a copy of an input, or of a weight
            argument = seen.lay.get(seen.node, self.values[seen.node])
            return self._difference(seen, argument, None)
        if self.tiny:
            return self._tiny(seen, others)
        expected = recompute(seen.node, others)
        wrong = self._difference(seen, expected, self._exact(seen.node, others))
        if wrong is None or wrong.metadata:
            return wrong
        rtol, atol = self.ran.tolerance(expected.dtype)
        close = torch.isclose(widen(seen.value), widen(expected), rtol, atol)
        with contextlib.suppress(CannotRecompute):
            unfit = find_out_of_range_conversion(seen.node, others, ~close)
            return replace(wrong, exact="", unfit=unfit) if unfit else wrong
        return wrong

    def _tiny(self, seen: _MemoryValue, others: Known) -> Wrong | None:
        """Measure an error below the tolerances, which may exceed a tiny value.

        Differences that rounding of the operands explains are no errors.
        """
        if (
            len([n for n in list_nodes_between(seen.node, others) if not is_view(n)])
            > 1
        ):
            return None  # rounding between its operators is unknown
        exact = self._exact(seen.node, others)
        if exact is None or not isinstance(
            expected := recompute(seen.node, others), torch.Tensor
        ):
            return None
        rounding = measure_sensitivity(seen.node, others)
        return measure_difference(
            seen.value,
            expected,
            exact,
            _relative(self.ran.tolerance),
            rounding,
            signs=self.signs,
        )

    def _difference(
        self, seen: _MemoryValue, expected: Any, exact: torch.Tensor | None
    ) -> Wrong | None:
        """Measure how a value differs from the expected one.

        Raises:
            CannotRecompute: the expected value is no tensor, or its shape or dtype
                differs although the failure is not about metadata.
        """
        if not isinstance(expected, torch.Tensor):
            raise CannotRecompute(f"{seen.node.name} is no tensor")
        wrong = measure_difference(seen.value, expected, exact, self.ran.tolerance)
        if wrong and wrong.metadata and not self.ran.metadata:
            raise CannotRecompute(wrong.metadata)
        return wrong

    def _exact(self, node: fx.Node, others: Known) -> torch.Tensor | None:
        """Return the value in float64; None if it is unknown.

        It is None, too, if integers are computed from integers: they may overflow.
        """
        try:
            value = recompute(node, others, exactly=True)
        except CannotRecompute:
            return None
        part = list_nodes_between(node, others)
        used = [value, *(others.get(n) for at in part for n in at.all_input_nodes)]
        is_tensor = isinstance(value, torch.Tensor) and any(map(_is_inexact, used))
        return None if not is_tensor or any(map(_computes_integers, part)) else value

    def _is_not_eagers(self, node: fx.Node, value: Any) -> bool:
        """Return whether a value differs from that of the whole graph's eager run."""
        expected = self.eager.get(node)
        return (
            measure_tensor_difference(value, expected, self.ran.tolerance) is not None
        )


def _computes_integers(node: fx.Node) -> bool:
    """Return whether an operator computes integers from integers."""
    value, *used = (n.meta.get("val") for n in (node, *node.all_input_nodes))
    is_number = isinstance(value, torch.Tensor) and value.dtype is not torch.bool
    return is_number and not any(map(_is_inexact, (value, *used)))


def _is_inexact(value: Any) -> bool:
    """Return whether a value is a tensor of floating-point or complex numbers."""
    is_tensor = isinstance(value, torch.Tensor)
    return is_tensor and (value.is_floating_point() or value.is_complex())


def _relative(tolerance: Tolerance) -> Tolerance:
    """Return the tolerance without its absolute part."""
    return lambda dtype: (tolerance(dtype)[0], 0.0)


# Check whether the graph that Inductor lowers computes what the program computes.
#
# Both run in eager. If they differ, no kernel is at fault but a rewrite of the program:
# functionalization, a decomposition, or a pass.

Origins = Callable[[fx.Node], list[str]]
"""Returns the names of the program's nodes that a node of Inductor's graph comes
from."""


@dataclass(frozen=True)
class ComparedRun:
    """A program that was run and compared with eager.

    Attributes:
        calls: the number of calls; the values are those of the last one.
        metadata: whether its results differ from eager's in shape or dtype.
    """

    exported: ExportedProgram
    inputs: Inputs
    calls: int
    tolerance: Tolerance
    origins: Origins
    metadata: bool = False


def add_graph_results(
    facts: KernelValues, graph: fx.Graph, eager: Mapping[fx.Node, Any], ran: ComparedRun
) -> KernelValues:
    """Add the results of the lowered graph in eager to a report of kernel values.

    If they differ from the program's, this adds the first rewritten node, or the lost
    write.

    Args:
        facts: the report.
        eager: the graph's values in eager, without those that depend on random numbers.
    """
    if ran.calls > 1:
        return facts
    program = ran.exported.graph
    placeholders = program.find_nodes(op="placeholder")
    flat = flat_inputs(ran.exported, ran.inputs)
    known = dict(zip(placeholders, map(copy_to_cpu, flat), strict=True))
    values = run_deterministic(program, known)
    got, expected = _results(graph, eager), _results(program, values)
    wrong = _measure_results(got, expected, ran.tolerance)
    facts = replace(facts, graph_agrees=None if wrong is None else not wrong)
    if not wrong:
        return facts
    facts = replace(facts, rewritten_wrong=wrong[0], graph=_print_graph(graph))
    operands = [(n, operand) for n in program.nodes for operand in n.all_input_nodes]
    writers = list(dict.fromkeys(n for n, at in operands if n in list_writers(at)))
    if writers:  # a node's value changes as the program runs
        functionalized = _run_functionalized(program, known)
        if _measure_results(got, functionalized, ran.tolerance) == []:
            return replace(facts, functionalized=_list_writes_and_views(writers))
        return replace(facts, lost=_find_lost_write(writers, program, known, got, ran))
    for node in program.nodes:
        parts = _parts(graph, node.name, ran.origins)
        kept = [part for part in parts if part.target == node.target]
        computed, value = [eager.get(part) for part in parts], values.get(node)
        name, error = "", None
        if not kept and _measure_last(computed[-1:], value, ran):
            name, error = _decompose(node, values, ran)
        is_kept = bool(kept) and kept[-1] is parts[-1]
        diff = error or _measure_last(computed, value, ran, shapes=is_kept)
        if diff is None:
            continue
        if kept and (found := _find_lost_sign(node, kept[-1], values, eager, ran)):
            node, diff = found
        facts = replace(facts, rewritten=node.name, rewritten_wrong=diff)
        return replace(facts, decomposition=name)
    return facts


def _print_graph(graph: fx.Graph) -> str:
    """Return a graph as a function of its placeholders; '' if it has subgraphs.

    Weights are numbered, because a run may be anonymous.
    """
    plain = fx.Graph()  # without the code that flattens the program's inputs
    plain.output(plain.graph_copy(graph, {}))
    for number, node in enumerate(plain.find_nodes(op="get_attr")):
        if not isinstance(node.meta.get("val"), torch.Tensor):
            return ""
        node.name = node.target = f"weight_{number}"
    return re.sub(r";  [\w =]+ = None\n", "\n", plain.python_code("self").src).strip()


def _find_lost_sign(
    node: fx.Node, lowered: fx.Node, values: Known, eager: Known, ran: ComparedRun
) -> tuple[fx.Node, Wrong] | None:
    """Return the first operator before a node that gives a zero of the wrong sign.

    Args:
        lowered: the node in the graph that Inductor lowers.
    """
    pairs = zip(node.all_input_nodes, lowered.all_input_nodes, strict=False)
    for operand, other in pairs:
        value, got = values.get(operand), eager.get(other)
        if not (isinstance(value, torch.Tensor) and isinstance(got, torch.Tensor)):
            continue
        if value.dtype != got.dtype or not is_identical(value, got):
            continue
        diff = measure_difference(got, value, None, ran.tolerance, signs=True)
        if diff is not None:
            found = _find_lost_sign(operand, other, values, eager, ran)
            return found or (operand, diff)
    return None


def _decompose(
    node: fx.Node, values: Known, ran: ComparedRun
) -> tuple[str, Wrong | None]:
    """Return PyTorch's decomposition of a node's operator, and its error in float64.

    The function is '', and the error None, if there is no such error.
    """
    composite = codegen_api.DispatchKey.CompositeImplicitAutograd
    kernel = getattr(node.target, "py_kernels", {}).get(composite)
    decompositions = codegen_api.select_decomp_table()
    function = decompositions.get(node.target, kernel)
    code = getattr(inspect.unwrap(function), "__code__", None) if function else None
    folder = Path(torch.__file__).parent
    if code is None or folder not in Path(code.co_filename).parents:
        return "", None
    try:
        expected = _call(node, _copied(values), exactly=True)
        result = _call(node, _copied(values), exactly=True, function=function)
        wrong = _measure_last([result], expected, ran)
        eager = values[node]
        if wrong and _is_inexact(eager):
            compared = widen(expected), widen(result), widen(eager)
            exact = _find_agreement(*compared, ran.tolerance(eager.dtype))
            wrong = replace(wrong, exact=exact)
    except Exception:  # noqa: BLE001 - it may be for fake tensors only
        return "", None
    file = Path(code.co_filename).relative_to(folder.parent)
    return (f"{file}:{code.co_name}", wrong) if wrong else ("", None)


def _run_functionalized(graph: fx.Graph, known: Known) -> list[Any]:
    """Return the results of a program after functionalization; [] if that raises."""

    def run(*values: Any) -> list[Any]:
        found = run_graph(graph, dict(zip(known, values, strict=True)), seed=0)
        return _results(graph, found)

    try:
        results = torch.func.functionalize(run)(*map(copy_to_cpu, known.values()))
        return list(results)
    except Exception:  # noqa: BLE001 - not every operator can be functionalized
        return []


def _list_writes_and_views(writers: list[fx.Node]) -> tuple[str, ...]:
    """List the operators that write in place, and the views through which they do."""
    nodes = dict.fromkeys(writers)
    pending = [node for writer in writers for node in _list_written(writer)]
    while pending:
        node = pending.pop()
        is_part = node.target is operator.getitem
        if is_view(node):
            nodes[node] = None
        if is_part or is_view(node):
            pending += node.all_input_nodes[:1]
    return tuple(node.name for node in nodes)


def _list_written(writer: fx.Node) -> list[fx.Node]:
    """List the operands that a node writes into; all of them if that is not known."""
    schema = getattr(writer.target, "_schema", None)
    pairs = zip(schema.arguments, writer.args, strict=False) if schema else ()
    written = [
        v for a, v in pairs if a.alias_info is not None and a.alias_info.is_write
    ]
    return [v for v in written if isinstance(v, fx.Node)] or writer.all_input_nodes


def _find_lost_write(
    writers: list[fx.Node],
    program: fx.Graph,
    known: Mapping[fx.Node, Any],
    results: list[Any],
    ran: ComparedRun,
) -> str:
    """Return the operator without whose write eager gives the same results, or ''.

    It is '' as well if there are several such operators.
    """
    lost = []
    for node in writers:
        copies = {n: copy_to_cpu(v) for n, v in known.items()}
        values = run_graph(program, copies, seed=0, ignored=node)
        if _measure_results(results, _results(program, values), ran.tolerance) == []:
            lost.append(node.name)
    return lost[0] if len(lost) == 1 else ""


def _parts(graph: fx.Graph, name: str, origins: Origins) -> list[fx.Node]:
    """List the graph's calls that come from one node of the program and no other."""
    calls = (node for node in graph.nodes if node.op == "call_function")
    return [node for node in calls if origins(node) == [name]]


def _measure_last(
    values: list[Any], expected: Any, ran: ComparedRun, *, shapes: bool = False
) -> Wrong | None:
    """Measure how the last of several values differs; None if any of them is right.

    Args:
        shapes: whether another shape counts, which a part of a computation may have.
    """
    if not isinstance(expected, torch.Tensor):
        return None
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    errors = [
        measure_difference(value, expected, None, ran.tolerance) for value in tensors
    ]
    measured = [
        w
        for w in errors
        if w and (not w.metadata or (shapes and " shape " in w.metadata))
    ]
    return measured[-1] if measured and all(errors) else None


def _results(graph: fx.Graph, values: Mapping[fx.Node, Any]) -> list[Any]:
    """List the values that a graph returns; None for each one that is missing."""
    (output,) = graph.find_nodes(op="output")
    returned = list(output.args[0])
    return [values.get(v) if isinstance(v, fx.Node) else None for v in returned]


def _measure_results(
    actual: list[Any], expected: list[Any], tolerance: Tolerance
) -> list[Wrong] | None:
    """Measure how results differ; None if one is random or could not be computed."""
    values = [*actual, *expected]
    if len(actual) != len(expected) or any(v is None for v in values):
        return None
    pairs = zip(actual, expected, strict=True)
    differences = (measure_tensor_difference(*pair, tolerance) for pair in pairs)
    return [wrong for wrong in differences if wrong is not None]


def measure_tensor_difference(
    value: Any, expected: Any, tolerance: Tolerance
) -> Wrong | None:
    """Measure how one tensor differs from another; None if either is no tensor."""
    if isinstance(value, torch.Tensor) and isinstance(expected, torch.Tensor):
        return measure_difference(value, expected, None, tolerance)
    return None


# Recompute values in eager, and measure how compiled values differ from them.
#
#     x -> sin -> y -> cos -> z        z from y alone if y is known, else from x

Known = Mapping[fx.Node, Any]
"""Known values of nodes: tensors and numbers."""

_WRITES_BACK = torch.ops.aten.copy_.default
_SEEDS = (0, 1)


class CannotRecompute(Exception):
    """Eager cannot compute a value, or computes two different ones; says why."""


def list_nodes_between(node: fx.Node, known: Iterable[fx.Node]) -> list[fx.Node]:
    """List the nodes between known values and a node, in the graph's order.

    Nodes that write into an operand are included, because later readers see their
    writes.
    """
    known, order = set(known) - {node}, {n: i for i, n in enumerate(node.graph.nodes)}
    nodes, pending = set(), [node]
    while pending:
        current = pending.pop()
        if current in nodes or current in known:
            continue
        nodes.add(current)
        pending += current.all_input_nodes
        for operand in current.all_input_nodes:
            pending += [w for w in list_writers(operand) if order[w] < order[current]]
    return sorted(nodes, key=order.__getitem__)


def list_writers(node: fx.Node) -> list[fx.Node]:
    """List the nodes that write into a value of the graph.

    Nodes that write back to inputs and buffers are left out, because they run last.
    """
    return [user for user in node.users if _writes(user) and node in user.args]


def _writes(node: fx.Node) -> bool:
    """Return whether a node writes into an operand, other than a final write-back."""
    schema = getattr(node.target, "_schema", None)
    in_place = bool(schema and schema.is_mutable) or "mutation" in str(node.target)
    return in_place and node.target is not _WRITES_BACK


def is_view(node: fx.Node) -> bool:
    """Return whether an operator returns the memory of its operand."""
    schema = getattr(node.target, "_schema", None)
    aliases = [r.alias_info for r in schema.returns] if schema else []
    return any(alias is not None and not alias.is_write for alias in aliases)


def recompute(node: fx.Node, known: Known, *, exactly: bool = False) -> Any:
    """Compute a node's value from known values.

    Args:
        exactly: compute in float64.

    Raises:
        CannotRecompute: an operator raises, draws random numbers, or returns
            uninitialized memory.
    """
    part = list_nodes_between(node, known)
    for step in part:
        if "empty" in str(step.target):
            raise CannotRecompute(f"{step.target} returns uninitialized memory")
    first, second = (_run(node, part, known, exactly, seed) for seed in _SEEDS)
    if not is_identical(first, second):
        raise CannotRecompute("a value depends on random numbers")
    return first


_CONVERSIONS = "aten._to_copy.default", "prims.convert_element_type.default"


def find_out_of_range_conversion(
    node: fx.Node, known: Known, differs: torch.Tensor
) -> str:
    """Return the integer dtype to which values are converted that do not fit it, or ''.

    PyTorch does not define the results: see the documentation of ``torch.Tensor.to``.

    Args:
        differs: the elements of the node's value that are wrong. Each of them must
            depend on a value that does not fit.

    Raises:
        CannotRecompute: as ``recompute``.
    """
    for step in list_nodes_between(node, known):
        if str(step.target) not in _CONVERSIONS:
            continue
        source = step.all_input_nodes[0]
        before = known[source] if source in known else recompute(source, known)
        converted = recompute(step, known)
        is_integer = not _is_inexact(converted) and converted.dtype is not torch.bool
        if not (before.is_floating_point() and is_integer):
            continue
        limits, values = torch.iinfo(converted.dtype), before.to(torch.float64).trunc()
        fits = (values >= limits.min) & (values < float(limits.max + 1))  # NaN does not
        others = [torch.where(fits, converted, number) for number in (0, 1)]
        if step is not node:
            others = [recompute(node, {**known, step: other}) for other in others]
        one, other = others
        if not (differs & torch.isclose(one, other, equal_nan=True)).any():
            return str(converted.dtype).removeprefix("torch.")
    return ""


def measure_sensitivity(node: fx.Node, known: Known) -> torch.Tensor:
    """Measure how far a node's value moves if its operands are rounded differently.

    Returns:
        For each element, the largest of three changes, each from operands that were
        moved by up to two units in the last place.
    """
    exact = recompute(node, known, exactly=True)
    moved = []
    for seed in range(3):
        torch.manual_seed(seed)
        jittered = {n: pytree.tree_map(_jitter, v) for n, v in known.items()}
        value = recompute(node, jittered, exactly=True)
        moved.append((value - exact).abs().nan_to_num(torch.inf))
    return torch.stack(moved).amax(0)


def _jitter(value: Any) -> Any:
    """Move each element of a float tensor by up to two units in its last place."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    ulps = 4 * torch.finfo(value.dtype).eps * (torch.rand(value.shape) - 0.5)
    return value.to(torch.float64) * (1 + ulps)


def run_graph(
    graph: fx.Graph, known: Known, seed: int, ignored: fx.Node | None = None
) -> dict[fx.Node, Any]:
    """Compute the values of all nodes, except where an operator raises.

    Args:
        ignored: a node whose writes into its operands are discarded.
    """
    values = dict(known)
    torch.manual_seed(seed)
    for node in graph.nodes:
        if node.op == "output" or node in values:
            continue
        try:
            operands = _copied(values) if node is ignored else values
            values[node] = _call(node, operands, exactly=False)
        except Exception:  # noqa: BLE001 - operators may raise anything
            continue
    return values


def _run(
    node: fx.Node, part: list[fx.Node], known: Known, exactly: bool, seed: int
) -> Any:
    """Compute a node's value by running a part of the graph with one seed.

    Raises:
        CannotRecompute: an operator raises.
    """
    widened = to_float64 if exactly else copy_value
    needed = {n for step in part for n in step.all_input_nodes}
    values = {n: pytree.tree_map(widened, v) for n, v in known.items() if n in needed}
    torch.manual_seed(seed)
    try:
        for step in part:
            values[step] = _call(step, values, exactly=exactly)
    except Exception as error:
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise CannotRecompute(f"{step.name}: {what:.200}") from error
    return values[node]


def _call(
    node: fx.Node,
    values: Known,
    *,
    exactly: bool,
    function: Callable[..., Any] | None = None,
) -> Any:
    """Call a node's operator, or another function, on known values, on the CPU.

    Raises:
        CannotRecompute: the node is no operator call.
    """
    if node.op != "call_function":
        raise CannotRecompute(f"{node.name} is not known")
    args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
    if exactly:
        args, kwargs = pytree.tree_map(widen_dtype, (args, kwargs))
    args, kwargs = pytree.tree_map(_on_cpu, (args, kwargs))
    if node.target is _WRITES_BACK:
        args = (args[0].clone(), *args[1:])
    with torch.no_grad():
        value = (function or node.target)(*args, **kwargs)  # type: ignore[operator]
    return pytree.tree_map(to_float64, value) if exactly else value


def _on_cpu(value: Any) -> Any:
    """Replace a device by the CPU, because Inductor's graph may name a missing GPU."""
    return torch.device("cpu") if isinstance(value, torch.device) else value


def run_deterministic(graph: fx.Graph, known: Known) -> dict[fx.Node, Any]:
    """Compute the values of all nodes that do not depend on random numbers."""
    first, second = (run_graph(graph, _copied(known), seed) for seed in _SEEDS)
    return {
        n: v for n, v in first.items() if n in second and is_identical(v, second[n])
    }


def _copied(known: Known) -> Known:
    return {node: copy_value(value) for node, value in known.items()}


def is_identical(first: Any, second: Any) -> bool:
    """Return whether two values or tuples are equal; NaN equals NaN."""
    mine, theirs = pytree.tree_leaves(first), pytree.tree_leaves(second)
    return len(mine) == len(theirs) and all(map(_same, mine, theirs))


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        if first.shape != second.shape:
            return False
        return bool(torch.isclose(first, second, 0, 0, equal_nan=True).all())
    return bool(first == second) or first != first


def copy_to_cpu(value: Any) -> Any:
    """Copy a value to the CPU, where eager runs."""
    copied = copy_value(value)
    return copied.cpu() if isinstance(copied, torch.Tensor) else copied


def list_called_operators(part: Iterable[fx.Node]) -> tuple[str, ...]:
    """Name the operators that a part of a graph calls, once each; skip ``getitem``."""
    functions = (n for n in part if n.op == "call_function")
    targets = (n.target for n in functions if n.target is not operator.getitem)
    return tuple(dict.fromkeys(str(target) for target in targets))


# Measure how a tensor differs from the expected tensor.

Tolerance = Callable[[torch.dtype], tuple[float, float]]
"""The relative and absolute tolerance for values of a dtype."""

_ROUNDING_FACTOR = 10
"""A difference up to this multiple of the effect of rounding is no error."""


def measure_difference(
    actual: torch.Tensor,
    expected: torch.Tensor,
    exact: torch.Tensor | None,
    tolerance: Tolerance,
    rounding: torch.Tensor | None = None,
    *,
    signs: bool = False,
) -> Wrong | None:
    """Measure how a tensor differs from eager's; return None if it is close enough.

    Args:
        exact: the float64 result, if there is one; differences that eager's own
            rounding explains are no errors.
        tolerance: the relative and absolute tolerance by dtype.
        rounding: for each element, how far it moves if its inputs are rounded
            differently.
        signs: whether zeros of both signs differ, because a division shows the sign.
    """
    for what in ("dtype", "shape"):
        a, e = getattr(actual, what), getattr(expected, what)
        if a != e:
            a, e = (tuple(v) if what == "shape" else v for v in (a, e))
            return Wrong(metadata=f"the result has {what} {a} instead of {e}")
    if exact is not None and exact.shape != expected.shape:
        exact = None
    if exact is not None and expected.dtype in _WIDEST and _same(exact, expected):
        exact = None  # eager computes in float64 itself
    a, e = widen(actual), widen(expected)
    rtol, atol = tolerance(expected.dtype)
    marked = ~torch.isclose(a, e, rtol=rtol, atol=atol, equal_nan=True)
    if exact is not None:
        marked &= mark_beyond_rounding(actual, expected, exact, (rtol, atol))
    if rounding is not None:
        marked &= (a - e).abs().nan_to_num(torch.inf) > _ROUNDING_FACTOR * rounding
    if signs and not a.is_complex():
        marked |= (a == 0) & (e == 0) & (a.signbit() != e.signbit())
    if not marked.any():
        return None
    return _measure_marked(actual, expected, exact, marked, (rtol, atol))


_WIDEST = (torch.float64, torch.complex128)


def _measure_marked(
    actual: torch.Tensor,
    expected: torch.Tensor,
    exact: torch.Tensor | None,
    marked: torch.Tensor,
    limits: tuple[float, float],
) -> Wrong:
    """Return the number, sizes and first position of the marked differences."""
    a, e = widen(actual)[marked], widen(expected)[marked]
    first = tuple(int(i) for i in marked.nonzero()[0])
    errors = (a - e).abs().to(torch.float64)
    return Wrong(
        wrong=int(marked.sum()),
        of=marked.numel(),
        first=first,
        got=str(actual[first].item()),
        expected=str(expected[first].item()),
        largest=_largest(errors),
        relative=_largest(errors / e.abs()),
        ulps=_largest(errors / _ulp(e, expected.dtype)),
        nans=_nans(actual),
        nans_expected=_nans(expected),
        exact=""
        if exact is None
        else _find_agreement(widen(exact)[marked], a, e, limits),
        of_signs=bool(((a == 0) & (e == 0)).all()),
    )


def _largest(errors: torch.Tensor) -> float | None:
    """Return the largest finite error; None if there is none."""
    finite = errors[errors.isfinite()]
    return float(finite.max()) if finite.numel() else None


def _ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the unit in the last place of each value; NaN for integers.

    It is 2 ** (floor(log2 |value|)) * eps, and at least that of the smallest normal
    number.
    """
    size = values.abs().to(torch.float64)
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.full_like(size, torch.nan)
    info = torch.finfo(dtype)
    exponent = torch.frexp(size.clamp(min=info.smallest_normal)).exponent - 1
    return torch.pow(2.0, exponent.to(torch.float64)) * info.eps


def _nans(values: torch.Tensor) -> int:
    return int(values.isnan().sum())


def _find_agreement(
    exact: torch.Tensor,
    actual: torch.Tensor,
    expected: torch.Tensor,
    limits: tuple[float, float],
) -> str:
    """Return which of the two results float64 agrees with, where they differ.

    Returns:
        ``eager``, ``compiled``, ``both`` or ``neither``.
    """
    rtol, atol = limits
    agrees = [
        bool(torch.isclose(v, exact, rtol=rtol, atol=atol, equal_nan=True).all())
        for v in (expected, actual)
    ]
    names = {(True, False): "eager", (False, True): "compiled", (True, True): "both"}
    return names.get((agrees[0], agrees[1]), "neither")
