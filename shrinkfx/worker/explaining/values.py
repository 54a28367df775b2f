"""Which kernel is wrong: each value in memory against eager's operators.

What a kernel was given is what lay in memory, right or not, so a kernel is wrong here
only where *it* is; it is not one that shows what another has made. Values that fusion
keeps out of memory cannot be seen: all operators between two that can are one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from shrinkfx.protocol.kernel_values import (
    Computed,
    KernelValues,
    Wrong,
)
from shrinkfx.worker.explaining.errors import Tolerance, difference
from shrinkfx.worker.explaining.lowered import Ran, differs, with_graph
from shrinkfx.worker.explaining.missized import missized
from shrinkfx.worker.explaining.overwritten import overwritten
from shrinkfx.worker.explaining.recompute import (
    CannotRecompute,
    Known,
    between,
    both_times,
    calls,
    identical,
    is_view,
    on_host,
    recompute,
    run_all,
    sensitivity,
    writers,
)
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.model import flat_inputs

_NOT_RETURNED = "what is returned is not what a kernel has left in memory"


class _Unknown(Exception):
    """Nothing can be told of the values; says why."""


@dataclass(frozen=True)
class _Seen:
    """A value of a node that lay in memory: a kernel's, or a result.

    Attributes:
        lay: inputs and weights as they lay in memory before the launch.
        spoilt: why what the kernel was given is not known, or ''.
    """

    node: fx.Node
    value: torch.Tensor
    name: str
    kernel: str = ""
    launch: int = 0
    lay: Mapping[fx.Node, torch.Tensor] = field(default_factory=dict)
    spoilt: str = ""


def judge(recording: Recording, ran: Ran) -> KernelValues:
    """Hold what a run has left in memory against eager."""
    launches = tuple(launch.kernel for launch in recording.launches)
    told = KernelValues(launches=launches, call=ran.calls)
    try:
        return _judged(recording, ran, told)
    except (_Unknown, CannotRecompute) as error:
        return replace(told, unknown=str(error))
    except Exception as error:  # noqa: BLE001 - the check's own answer stands
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        return replace(
            told, unknown=f"it could not be compared with eager: {what:.200}"
        )


def _judged(recording: Recording, ran: Ran, told: KernelValues) -> KernelValues:
    results = recording.results()
    if recording.graph is None or results is None:
        raise _Unknown("it returned no result")
    known = _roots(recording.graph, ran)
    eager = both_times(recording.graph.graph, known)
    seen = [*_in_memory(recording, known), *_returned(recording.graph.graph, results)]
    memory = {s.node: s.value for s in seen if s.launch}
    values = {s.node: s.value for s in seen} | memory | known
    look = _Look(ran, values, memory, eager)
    computed = tuple(_with_size(look.at(each), each, recording, ran) for each in seen)
    nodes = {s.name: s.node for s in seen if s.launch} | {n.name: n for n in known}
    over = overwritten(recording, nodes, computed, ran)
    told = replace(told, overwritten=tuple(over))
    if any(value.wrong for value in computed):
        told = replace(told, computed=computed)
        return with_graph(told, recording.graph.graph, eager, ran)
    closer = replace(look, tiny=True)
    tiny = tuple(map(closer.at, seen))
    told = replace(told, computed=tiny, tiny=any(value.wrong for value in tiny))
    return with_graph(told, recording.graph.graph, eager, ran)


def _with_size(told: Computed, seen: _Seen, recording: Recording, ran: Ran) -> Computed:
    """Add which size is another one than planned, of what has not eager's shape."""
    if told.wrong is None or not told.wrong.metadata or not seen.launch:
        return told
    planned = recording.layouts.get(seen.name, ())
    return replace(told, missized=missized(seen.value, planned, ran))


def _roots(graph: fx.GraphModule, ran: Ran) -> dict[fx.Node, Any]:
    """Know what the graph begins with, as it is in eager before the last call.

    Raises:
        _Unknown: its inputs are not the program's.
    """
    takers = graph.graph.find_nodes(op="placeholder")
    for flat in (ran.inputs.flat(), flat_inputs(ran.exported, ran.inputs)):
        if len(flat) == len(takers):
            break
    else:
        raise _Unknown(f"the graph that Inductor lowers has {len(takers)} inputs")
    known = dict(zip(takers, map(on_host, flat), strict=True))
    for node in graph.graph.find_nodes(op="get_attr"):
        try:
            known[node] = on_host(_attribute(graph, str(node.target)))
        except AttributeError:
            raise _Unknown(f"Inductor has freed {node.target}") from None
    for _ in range(ran.calls - 1):
        _call_once(graph.graph, known)
    return known


def _attribute(graph: fx.GraphModule, name: str) -> Any:
    if hasattr(graph, name):  # a name with dots in it, as AOTInductor has them
        return getattr(graph, name)
    return functools.reduce(getattr, name.split("."), graph)


def _call_once(graph: fx.Graph, known: dict[fx.Node, Any]) -> None:
    """Have weights and buffers hold what they do after a call in eager."""
    values = run_all(graph, known, seed=0)
    for node in graph.nodes:
        if node.target is torch.ops.aten.copy_.default and node.args[0] in known:
            if node not in values:
                raise _Unknown(f"{node.name} could not be run in eager")
            known[node.args[0]] = values[node]


def _in_memory(recording: Recording, roots: Known) -> Iterator[_Seen]:
    """Read what each launch has made, in their order."""
    by_name = {node.name: node for node in roots}
    made: dict[str, tuple[int, torch.Tensor]] = {}
    for number, launch in enumerate(recording.launches):
        spoilt, lay = "", {}
        for name in launch.given:
            before = recording.was_given(number, name)
            if before is not None and name in by_name:
                lay[by_name[name]] = before
            if name in made and before is not None:
                maker, value = made[name]
                kernel = recording.launches[maker].kernel
                if not identical(before, value):
                    spoilt = f"{name}, which {kernel} made, was overwritten before it"
        for name, node in launch.made:
            after = recording.made(number, name)
            if after is not None and not writers(node):
                made[name] = number, after
                about = launch.kernel, number + 1, lay, spoilt
                yield _Seen(node, after, name, *about)


def _returned(graph: fx.Graph, results: Sequence[Any]) -> Iterator[_Seen]:
    (output,) = graph.find_nodes(op="output")
    nodes = list(output.args[0])
    if len(nodes) != len(results):
        raise _Unknown(f"{len(results)} results of {len(nodes)} values")
    for place, (node, value) in enumerate(zip(nodes, results, strict=True)):
        if isinstance(node, fx.Node) and isinstance(value, torch.Tensor):
            yield _Seen(node, value, f"result {place}")


@dataclass(frozen=True)
class _Look:
    """Holds one value after the other against eager.

    Attributes:
        values: what is known, by its node: in memory, results, and inputs.
        memory: what kernels have left there.
        eager: values of a run of the whole graph in eager, without random ones.
        tiny: look for what is wrong relative to its size, of single operators.
    """

    ran: Ran
    values: Known
    memory: Known
    eager: Mapping[fx.Node, Any]
    tiny: bool = False

    def at(self, seen: _Seen) -> Computed:
        """Hold a value against what eager makes of what it was computed from."""
        values = {**self.values, **seen.lay}
        others = {n: v for n, v in values.items() if n is not seen.node}
        is_returned = seen.node in self.memory and not seen.launch
        part = [] if is_returned else between(seen.node, others)
        given = {n for at in part for n in at.all_input_nodes if n in others}
        names = dict.fromkeys(name for at in part for name in self.ran.origins(at))
        told = Computed(
            kernel=seen.kernel,
            launch=seen.launch,
            value=seen.name,
            node=seen.node.name,
            operators=tuple(names),
            calls=calls(part),
            given=tuple(sorted(n.name for n in given)),
            given_wrong=tuple(
                sorted(n.name for n in given if self._is_not_eagers(n, others[n]))
            ),
            given_random=tuple(sorted(n.name for n in given if n not in self.eager)),
            unknown=seen.spoilt,
        )
        if seen.spoilt:
            return told
        try:
            if is_returned:
                kept = identical(seen.value, self.memory[seen.node])
                return told if kept else replace(told, unknown=_NOT_RETURNED)
            return replace(told, wrong=self._wrong(seen, others))
        except CannotRecompute as error:
            return replace(told, unknown=str(error))

    def _wrong(self, seen: _Seen, others: Known) -> Wrong | None:
        if seen.node.op != "call_function":  # a copy of an input, or of a weight
            lay = seen.lay.get(seen.node, self.values[seen.node])
            return self._difference(seen, lay, None)
        if self.tiny:
            return self._tiny(seen, others)
        expected = recompute(seen.node, others)
        return self._difference(seen, expected, self._exact(seen.node, others))

    def _tiny(self, seen: _Seen, others: Known) -> Wrong | None:
        """Look closer: an error may be below the tolerances and all of a value.

        Not where it is within what rounding of the inputs would do.
        """
        if len([n for n in between(seen.node, others) if not is_view(n)]) > 1:
            return None  # how far rounding inside of it goes is not known
        exact = self._exact(seen.node, others)
        if exact is None or not isinstance(
            expected := recompute(seen.node, others), torch.Tensor
        ):
            return None
        rounding = sensitivity(seen.node, others)
        return difference(
            seen.value, expected, exact, _relative(self.ran.tolerance), rounding
        )

    def _difference(
        self, seen: _Seen, expected: Any, exact: torch.Tensor | None
    ) -> Wrong | None:
        if not isinstance(expected, torch.Tensor):
            raise CannotRecompute(f"{seen.node.name} is no tensor")
        wrong = difference(seen.value, expected, exact, self.ran.tolerance)
        if wrong and wrong.metadata and not self.ran.metadata:
            raise CannotRecompute(wrong.metadata)
        return wrong

    def _exact(self, node: fx.Node, others: Known) -> torch.Tensor | None:
        try:
            value = recompute(node, others, exactly=True)
        except CannotRecompute:
            return None
        return value if isinstance(value, torch.Tensor) else None

    def _is_not_eagers(self, node: fx.Node, value: Any) -> bool:
        expected = self.eager.get(node)
        return differs(value, expected, self.ran.tolerance) is not None


def _relative(tolerance: Tolerance) -> Tolerance:
    return lambda dtype: (tolerance(dtype)[0], 0.0)
