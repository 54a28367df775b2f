"""The first lowering of a process, done once in the server for all its children.

The first lowering imports 200 modules and registers Inductor's patterns, which takes
1.3 CPU-seconds; the second takes 0.1. So the server lowers a program of two operators,
by the calls that lower any program, and children inherit the state that this leaves.

The failure that a run is about may happen in a first lowering, and could end the
server. So the server does it only after a child has survived one with the same
preloads.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import random
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol import requests
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.choices import Backend, Step
from shrinkfx.protocol.files import LOWERING
from shrinkfx.protocol.requests import Request
from shrinkfx.worker.aoti.backend import build
from shrinkfx.worker.aoti.fast_build import StepPassed, fast_build, with_plain_wrapper
from shrinkfx.worker.aoti.torch_compile import CompiledProgram
from shrinkfx.worker.forkserver.supervise import without_monitor_thread
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.private_api import fast_build_api, first_lowering_api, inductor_api
from shrinkfx.worker.private_api.graph_api import pytree as _pytree

_LOWER = (
    requests.CheckAtSizes,
    requests.CheckCandidate,
    requests.CheckOriginal,
    requests.CompileOriginal,
)
"""Tasks that may lower a program."""

_TASKS_AFTER_LOWERING = (*_LOWER, requests.ForkServer)
"""Tasks to do it before; the children of a fork server would each do their own."""

_STAGES_AFTER_LOWERING = (
    Stage.LOAD,
    Stage.PASSING,
    Stage.RUN,
    Stage.COMPARE,
    Stage.DONE,
)


class FirstLowering:
    """Does the first lowering before the second program is lowered, if at all.

    Args:
        program: the input program, which all candidates are cut from; None if no
            program is lowered.
        directory: where to put the files of the lowering, which stay, because the
            process keeps their names.
        backend: what children compile programs with.
    """

    def __init__(self, program: Program | None, directory: Path, backend: str) -> None:
        self._folder = directory / "first-lowering"
        self._backend = backend
        # Inductor registers patterns for one device; a second causes duplicate errors.
        known = not (
            first_lowering_api.FEATURE.missing or fast_build_api.FEATURE.missing
        )
        self._may_come = known and program is not None and _all_on_cpu(program)
        self._was_survived = False

    def note_ending(self, request: Request, ending: Ending) -> None:
        """Note whether the child of a request has survived a lowering."""
        # torch.compile also runs the C++ compiler, which the child must survive, too.
        stops_early = (
            self._backend == Backend.INDUCTOR and ending.stage == Stage.COMPILE
        )
        if isinstance(request.task, _LOWER) and not stops_early:
            self._was_survived |= _has_survived_lowering(ending)

    def lower_before(self, request: Request) -> None:
        """Do the first lowering now, if the child of this request would do one."""
        due = self._may_come and self._was_survived and not request.fresh
        if (
            not due
            or not isinstance(request.task, _TASKS_AFTER_LOWERING)
            or _is_built(request)
        ):
            return
        self._may_come = False
        at_work = self._folder.with_name(LOWERING)
        try:
            at_work.touch()  # if this process dies of it, the next server does none
            self._folder.mkdir()
            lower_two_operators(self._folder, self._backend)
        except Exception:  # noqa: BLE001 - each child makes its own then, and tells
            traceback.print_exc()  # into the server's log
        at_work.unlink(missing_ok=True)
        gc.freeze()  # as the server has done for its earlier objects


def _all_on_cpu(program: Program) -> bool:
    devices = {
        str(value.device)
        for node in program.original.graph.nodes
        for value in _pytree.tree_leaves(node.meta.get("val"))
        if isinstance(value, torch.Tensor)
    }
    return devices == {"cpu"}


def _has_survived_lowering(ending: Ending) -> bool:
    """Return whether a child has lowered a program, or raised while lowering it."""
    if ending.stage == Stage.COMPILE:
        step = ending.built.step if ending.built else Step.LOWERING
        return step is not Step.LOWERING or (ending.how, ending.code) == ("exit", 0)
    return ending.stage in _STAGES_AFTER_LOWERING


def _is_built(request: Request) -> bool:
    package = request.options.package
    return package is not None and Path(package).exists()


class _Two(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(torch.sin(x), 1)


def lower_two_operators(folder: Path, backend: str) -> None:
    """Lower a small program, and restore the other state of this process.

    With torch.compile, also compile the program's kernel, so that this process knows
    the path of the precompiled header. The program does not run.

    Args:
        folder: an empty folder, which must stay.
        backend: what lowers the program.
    """
    inputs = Inputs((torch.zeros(3, 4),), {})
    with _restore_state():
        exported = torch.export.export(_Two(), inputs.args)
        if backend == Backend.INDUCTOR:
            CompiledProgram(exported, folder, {}, lambda stage: None, inputs)
            return
        with contextlib.suppress(StepPassed), fast_build(folder, Step.LOWERING):
            build(exported, folder, with_plain_wrapper({}))


@contextlib.contextmanager
def _restore_state() -> Iterator[None]:
    """Restore what a lowering changes, except the imports and registrations."""
    variables, place = dict(os.environ), tempfile.tempdir
    random_state = random.getstate()
    # Dicts that a compilation writes to.
    metadata = getattr(inductor_api.config.aot_inductor, "metadata", {})
    written = [
        (data, copy.deepcopy(data)) for data in (first_lowering_api.counters, metadata)
    ]
    try:
        with torch.random.fork_rng(devices=[]), without_monitor_thread():
            yield
    finally:
        random.setstate(random_state)
        os.environ.clear()
        os.environ.update(variables)
        tempfile.tempdir = place
        for data, before in written:
            data.clear()
            data.update(before)
        first_lowering_api.metrics.reset()
