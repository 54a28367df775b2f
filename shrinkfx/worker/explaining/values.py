"""Find the wrong kernel: compare each value in memory with eager's operators.

A kernel's expected result is computed from its actual arguments, right or wrong. So a
kernel is wrong here only if it computes a wrong value itself, and not if it passes on
another kernel's error. Values that fusion keeps out of memory cannot be seen, so all
operators between two values in memory are checked as one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from shrinkfx.protocol.kernel_values import (
    Computed,
    KernelValues,
    Wrong,
)
from shrinkfx.worker.explaining.recompute import (
    CannotRecompute,
    Known,
    Tolerance,
    copy_to_cpu,
    is_identical,
    is_view,
    list_called_operators,
    list_nodes_between,
    list_writers,
    measure_difference,
    measure_sensitivity,
    recompute,
    run_deterministic,
    run_graph,
)
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.model import Inputs, flat_inputs

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
        raise _Unknown("it returned no result")
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
    """

    ran: ComparedRun
    values: Known
    memory: Known
    eager: Mapping[fx.Node, Any]
    tiny: bool = False

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
            return replace(result, wrong=self._wrong(seen, others))
        except CannotRecompute as error:
            return replace(result, unknown=str(error))

    def _wrong(self, seen: _MemoryValue, others: Known) -> Wrong | None:
        """Measure how a value differs from eager's."""
        if seen.node.op != "call_function":  # a copy of an input, or of a weight
            argument = seen.lay.get(seen.node, self.values[seen.node])
            return self._difference(seen, argument, None)
        if self.tiny:
            return self._tiny(seen, others)
        expected = recompute(seen.node, others)
        return self._difference(seen, expected, self._exact(seen.node, others))

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
            seen.value, expected, exact, _relative(self.ran.tolerance), rounding
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
        """Return the value in float64, or None if it cannot be computed."""
        try:
            value = recompute(node, others, exactly=True)
        except CannotRecompute:
            return None
        return value if isinstance(value, torch.Tensor) else None

    def _is_not_eagers(self, node: fx.Node, value: Any) -> bool:
        """Return whether a value differs from that of the whole graph's eager run."""
        expected = self.eager.get(node)
        return (
            measure_tensor_difference(value, expected, self.ran.tolerance) is not None
        )


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
    facts = replace(facts, rewritten_wrong=wrong[0])
    operands = [(n, operand) for n in program.nodes for operand in n.all_input_nodes]
    writers = list(dict.fromkeys(n for n, at in operands if n in list_writers(at)))
    if writers:  # a node's value changes as the program runs
        return replace(facts, lost=_find_lost_write(writers, program, known, got, ran))
    for node in program.nodes:
        parts = _parts(graph, node.name, ran.origins)
        diff = _measure_last([eager.get(part) for part in parts], values.get(node), ran)
        if diff is not None:
            return replace(facts, rewritten=node.name, rewritten_wrong=diff)
    return facts


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


def _measure_last(values: list[Any], expected: Any, ran: ComparedRun) -> Wrong | None:
    """Measure how the last of several values differs; None if any of them is right."""
    if not isinstance(expected, torch.Tensor):
        return None
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    errors = [
        measure_difference(value, expected, None, ran.tolerance) for value in tensors
    ]
    measured = [wrong for wrong in errors if wrong is not None and not wrong.metadata]
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
