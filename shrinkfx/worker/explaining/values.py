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

from shrinkfx.protocol.kernel_values import (
    Computed,
    KernelValues,
    Overwritten,
    Wrong,
)
from shrinkfx.worker.explaining.errors import Tolerance, measure_difference
from shrinkfx.worker.explaining.lowered import (
    ComparedRun,
    add_graph_results,
    measure_tensor_difference,
)
from shrinkfx.worker.explaining.recompute import (
    CannotRecompute,
    Known,
    copy_to_cpu,
    is_identical,
    is_view,
    list_called_operators,
    list_nodes_between,
    list_writers,
    measure_sensitivity,
    recompute,
    run_deterministic,
    run_graph,
)
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.model import flat_inputs
from shrinkfx.worker.sizes.bindings import bind_symbols

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
    computed = tuple(
        _with_size(comparison.compare(each), each, recording, ran) for each in seen
    )
    nodes = {s.name: s.node for s in seen if s.launch} | {n.name: n for n in known}
    overwritten = find_undeclared_writes(recording, nodes, computed, ran)
    report = replace(report, overwritten=tuple(overwritten))
    if any(value.wrong for value in computed):
        report = replace(report, computed=computed)
        return add_graph_results(report, recording.graph.graph, eager, ran)
    closer = replace(comparison, tiny=True)
    tiny = tuple(map(closer.compare, seen))
    report = replace(report, computed=tiny, tiny=any(value.wrong for value in tiny))
    return add_graph_results(report, recording.graph.graph, eager, ran)


def _with_size(
    result: Computed, seen: _MemoryValue, recording: Recording, ran: ComparedRun
) -> Computed:
    """Add which size differs from the plan, for a value whose shape is not eager's."""
    if result.wrong is None or not result.wrong.metadata or not seen.launch:
        return result
    planned = recording.layouts.get(seen.name, ())
    return replace(result, missized=describe_wrong_size(seen.value, planned, ran))


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
            node=seen.node.name,
            operators=tuple(names),
            calls=list_called_operators(part),
            sources=tuple(sorted(n.name for n in inputs)),
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


# Find buffers whose size in memory differs from the compiler's plan.
#
# The plan gives a buffer's sizes over symbols; compiled code reads each symbol's
# value off the inputs of a call. If the plan is right and the buffer's size is not,
# then compiled code read a symbol wrongly, and no operator is at fault.


def describe_wrong_size(
    value: torch.Tensor, planned: Sequence[Any], ran: ComparedRun
) -> str:
    """Return a message about a size of a buffer that compiled code got wrong, or ''.

    Args:
        planned: the buffer's sizes, expressions over the program's symbols.
    """
    if len(planned) != value.dim():
        return ""
    known = bind_symbols(ran.exported, flat_inputs(ran.exported, ran.inputs))
    numbers = {str(size): number for size, number in known.items()}
    for size, real in zip(planned, value.shape, strict=True):
        symbols: set[Any] = getattr(size, "free_symbols", set())
        if not symbols or any(str(symbol) not in numbers for symbol in symbols):
            continue
        right = size.xreplace({symbol: numbers[str(symbol)] for symbol in symbols})
        if right.is_number and int(right) != real:
            return (
                f"{size} is {int(right)} at these inputs, and {real} in compiled code"
            )
    return ""


def find_undeclared_writes(
    recording: Recording,
    nodes: Mapping[str, fx.Node],
    computed: Sequence[Computed],
    ran: ComparedRun,
) -> Iterator[Overwritten]:
    """Yield undeclared writes that run too early: later kernels read the changed value.

    Args:
        nodes: the node whose value each buffer, input and weight holds.
        computed: the values of the run, with the launches that computed them.
    """
    is_before = _program_order(ran)
    for number, launch in enumerate(recording.launches):
        writing = [node for _, node in launch.made]
        operators = tuple(dict.fromkeys(n for w in writing for n in ran.origins(w)))
        for name in launch.arguments:
            before = recording.load_argument_before(number, name)
            after = recording.load_argument_after(number, name)
            if before is None or after is None or name not in nodes or not writing:
                continue
            changed = int((~torch.isclose(before, after, 0, 0, equal_nan=True)).sum())
            read = _read_before(nodes[name], writing[0], is_before)
            early = {n for e in read for n in ran.origins(e)}
            later = [value for value in computed if value.launch > number + 1]
            readers = [value for value in later if early & {*value.operators}]
            if changed and readers:
                yield Overwritten(
                    value=name,
                    kernel=launch.kernel,
                    launch=number + 1,
                    operators=operators,
                    changed=changed,
                    of=before.numel(),
                    read_by=tuple(dict.fromkeys(r.kernel for r in readers)),
                    readers=tuple(n for n in readers[0].operators if n in early),
                )


IsBefore = Callable[[fx.Node, fx.Node], bool]
"""Returns whether eager runs one node before another."""


def _program_order(ran: ComparedRun) -> IsBefore:
    """Return a predicate that orders nodes as the program orders their origins.

    Inductor reorders operators that it takes as independent, which is the bug in
    question. So its own order counts only for nodes that come from no operator of the
    program.
    """
    order = {node.name: place for place, node in enumerate(ran.exported.graph.nodes)}

    def is_before(node: fx.Node, other: fx.Node) -> bool:
        mine, theirs = (
            [order[name] for name in ran.origins(each) if name in order]
            for each in (node, other)
        )
        if mine and theirs:
            return max(mine) < max(theirs)
        return node < other

    return is_before


def _read_before(value: fx.Node, writing: fx.Node, is_before: IsBefore) -> set[fx.Node]:
    """Return the nodes that eager computes from a value before a node overwrites it."""
    nodes: set[fx.Node] = set()
    pending = [value]
    while pending:
        users = [u for u in pending.pop().users if is_before(u, writing)]
        pending += [u for u in users if u not in nodes]
        nodes.update(users)
    return nodes
