"""Programs, candidates and set-ups from a module and its inputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Answer, Description
from shrinkfx.protocol.requests import CheckOptions, Describe, Request, Setup, Task
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.tasks import Worker


def export(
    module: torch.nn.Module, *args: Any, dynamic_shapes: Any = None
) -> ExportedProgram:
    return torch.export.export(module, args, dynamic_shapes=dynamic_shapes)


def make_candidate(
    module: torch.nn.Module, *args: Any, dynamic_shapes: Any = None
) -> RebuiltCandidate:
    """Export a module as a candidate that fails on its example inputs."""
    exported = export(module, *args, dynamic_shapes=dynamic_shapes)
    inputs = Inputs(args, {})
    return RebuiltCandidate(exported, inputs, inputs)


def make_program(
    module: torch.nn.Module, *args: Any, dynamic_shapes: Any = None
) -> Program:
    """Export a module as an input program that fails on its example inputs."""
    exported = export(module, *args, dynamic_shapes=dynamic_shapes)
    inputs = Inputs(args, {})
    return Program(exported, exported, inputs, inputs)


def save_setup(
    folder: Path, exported: ExportedProgram, inputs: Any = None, **more: Any
) -> Setup:
    """Save a program and failing inputs, if any; return the setup of a worker."""
    model = folder / "model.pt2"
    torch.export.save(exported, model)
    if inputs is not None:
        torch.save(inputs, folder / "inputs.pt")
        more["inputs"] = str(folder / "inputs.pt")
    return Setup(str(folder), model=str(model), **more)


def ask(
    worker: Worker, folder: Path, task: Task, options: CheckOptions | None = None
) -> Answer:
    """Have a worker perform a task in this process."""
    request = Request(task, options or CheckOptions())
    return worker.perform(request, lambda stage: None, folder)


def describe_candidate(
    worker: Worker, folder: Path, options: CheckOptions | None = None
) -> Candidate:
    """Ask a worker for a description; return the whole program as a candidate."""
    described = ask(worker, folder, Describe(), options)
    assert isinstance(described, Description)
    text = Path(described.skeleton).read_text()
    return Candidate.from_skeleton(Skeleton.from_json(json.loads(text)))


class Call(torch.nn.Module):
    """Returns what a function of the inputs gives; the inputs have its names."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function
