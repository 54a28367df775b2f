"""Find operators that write into an input without declaring it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import fx

from shrinkfx.protocol.kernel_values import Computed, Overwritten
from shrinkfx.worker.explaining.lowered import ComparedRun
from shrinkfx.worker.explaining.recording import Recording


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
