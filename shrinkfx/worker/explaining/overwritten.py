"""What operators change of what they are given, and do not declare to write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import fx

from shrinkfx.protocol.kernel_values import Computed, Overwritten
from shrinkfx.worker.explaining.lowered import Ran
from shrinkfx.worker.explaining.recording import Recording


def overwritten(
    recording: Recording,
    nodes: Mapping[str, fx.Node],
    computed: Sequence[Computed],
    ran: Ran,
) -> Iterator[Overwritten]:
    """Find what operators change undeclared, and kernels read too late.

    Args:
        nodes: whose values buffers, inputs and weights hold.
    """
    for number, launch in enumerate(recording.launches):
        writing = [node for _, node in launch.made]
        operators = tuple(dict.fromkeys(n for w in writing for n in ran.origins(w)))
        for name in launch.given:
            before = recording.was_given(number, name)
            left = recording.has_left(number, name)
            if before is None or left is None or name not in nodes or not writing:
                continue
            changed = int((~torch.isclose(before, left, 0, 0, equal_nan=True)).sum())
            early = {
                n for e in _read_before(nodes[name], writing[0]) for n in ran.origins(e)
            }
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


def _read_before(value: fx.Node, writing: fx.Node) -> set[fx.Node]:
    """List what eager computes of a value before an operator writes over it."""
    order = {node: place for place, node in enumerate(value.graph.nodes)}
    found: set[fx.Node] = set()
    left = [value]
    while left:
        users = [u for u in left.pop().users if order[u] < order[writing]]
        left += [u for u in users if u not in found]
        found.update(users)
    return found
