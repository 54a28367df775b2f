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
    """Find what operators change undeclared, and kernels read after that.

    Args:
        nodes: whose values buffers, inputs and weights hold.
    """
    for number, launch in enumerate(recording.launches):
        for name in launch.given:
            before = recording.was_given(number, name)
            left = recording.has_left(number, name)
            if before is None or left is None or name not in nodes:
                continue
            changed = int((~torch.isclose(before, left, 0, 0, equal_nan=True)).sum())
            held, later = nodes[name].name, number + 1
            after = [value for value in computed if value.launch > later]
            readers = [value for value in after if held in value.given]
            if changed and readers:
                made_by = [n for _, node in launch.made for n in ran.origins(node)]
                yield Overwritten(
                    value=name,
                    kernel=launch.kernel,
                    launch=later,
                    operators=tuple(dict.fromkeys(made_by)),
                    changed=changed,
                    of=before.numel(),
                    read_by=tuple(dict.fromkeys(r.kernel for r in readers)),
                    readers=readers[0].operators,
                )
