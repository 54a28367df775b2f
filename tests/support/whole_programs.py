"""Programs that a worker loads, in the place of reduced programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.signature import Signature
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Description
from shrinkfx.protocol.choices import Backend, Probe
from shrinkfx.protocol.requests import CheckOptions, Describe


@contextmanager
def reduced_program(
    folder: Path,
    module: nn.Module,
    args: tuple[Tensor, ...],
    *,
    target: Signature | None = None,
    failing: tuple[Tensor, ...] | None = None,
    preload: Path | None = None,
    on_interpreter: bool = False,
    options: CheckOptions | None = None,
    **export: Any,
) -> Iterator[ReducedProgram]:
    """Take a whole program for a reduced one.

    Args:
        target: its failure; if it is None, the program is run to see it.
        failing: the inputs with which it fails, if they are not those of the export.
        export: further arguments of ``torch.export.export``.
    """
    model, inputs = folder / "model.pt2", folder / "inputs.pt"
    torch.export.save(torch.export.export(module.eval(), args, **export), model)
    if failing is not None:
        torch.save(failing, inputs)
    with Server(
        model=model,
        inputs=inputs if failing is not None else None,
        preloads=[str(preload)] if preload else [],
        environment={"OMP_NUM_THREADS": "1"},
        backend=Backend.INTERPRETER if on_interpreter else Backend.AOTI,
        device="cuda" if on_interpreter else None,
    ) as server:
        usual = CheckOptions(probe=Probe.REAL if on_interpreter else None)
        client = CheckClient(server, Limits(600.0, 16 << 30), options or usual)
        described = client.ask(Describe()).answer
        assert isinstance(described, Description)
        client = client.with_options(reference=not described.eager_error)
        skeleton = Skeleton.from_json(json.loads(Path(described.skeleton).read_text()))
        whole = Candidate.from_skeleton(skeleton)
        target = target or client.run_input_program()[0].signature
        assert target is not None
        yield ReducedProgram(client, whole, target)
