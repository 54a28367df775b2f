"""Have a compiled program leave what each of its kernels was given, and has made.

A line is put into the generated wrapper before and behind each launch, and each call
of an operator: it saves tensors to files. Kernels are what they are without it.

Private APIs: ``Scheduler.codegen_extern_call`` and the provenance hook of
torch/_inductor/debug.py, which is told a kernel's part of the schedule before its
launch (2.11 to 2.13); the line in C++ is that of codegen/debug_utils.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import fx

from shrinkfx.worker.explaining.scheduled import (
    inputs_of,
    is_tensor,
    is_whole,
    name_of,
    node_of,
    outputs_of,
    reads_of,
    taken_from,
    variable_of,
)
from shrinkfx.worker.private_api import codegen_api
from shrinkfx.worker.private_api.graph_api import pytree

_HOOK = "set_kernel_post_grad_provenance_tracing"
_BEFORE, _AFTER, _LEFT = "before", "after", "left"
_RESULTS = "results.pt"
_PASSING = "passing"
_SAVED = Path("tmp", "aoti_torch")
"""As AOTInductor's C++ has it, below the working directory."""
_OWN = ("aten.", "prims.")
"""Operators of PyTorch's: what these write, they declare."""


@dataclass(frozen=True)
class Launched:
    """A launch of a kernel, or a call of an operator.

    Attributes:
        given: what it takes: buffers of earlier launches, inputs and weights.
        made: pairs of a buffer and the node whose value it is then.
    """

    kernel: str
    given: tuple[str, ...]
    made: tuple[tuple[str, fx.Node], ...]


@dataclass
class Recording:
    """What was generated, and the folder where a run leaves values.

    Attributes:
        graph: that Inductor has lowered.
        layouts: by buffer, its sizes as Inductor has them: over symbols.
    """

    folder: Path
    graph: fx.GraphModule | None = None
    launches: list[Launched] = field(default_factory=list)
    layouts: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._schedule: list[Any] = []
        self._variables: set[str] = set()
        self._makers: dict[str, int] = {}
        self._number, self._calling = 0, False
        self._lowering: object = None
        self._files = self.folder / _SAVED

    @contextlib.contextmanager
    def generating(self) -> Iterator[None]:
        """Record whatever is generated inside."""
        self._files.mkdir(parents=True, exist_ok=True)
        launch = codegen_api.PythonWrapperCodegen.generate_kernel_call
        call = codegen_api.scheduler.Scheduler.codegen_extern_call
        generate = codegen_api.scheduler.Scheduler.codegen
        tell = getattr(codegen_api.debug, _HOOK)

        def told(schedule: Any, *args: Any, **kwargs: Any) -> Any:
            self._schedule = list(schedule) if isinstance(schedule, Sequence) else []
            return tell(schedule, *args, **kwargs)

        def launched(wrapper: Any, name: str, args: Any, *more: Any, **kw: Any) -> Any:
            if self._calling:  # an operator's own kernel
                return launch(wrapper, name, args, *more, **kw)
            names = [a for a in args if isinstance(a, str)]
            self._begin(wrapper, name, names)
            done = launch(wrapper, name, args, *more, **kw)
            made = [b for s in self._schedule for b in outputs_of(s)]
            self._end(wrapper, [b for b in made if variable_of(b) in names])
            return done

        def called(scheduling: Any, part: Any) -> Any:
            wrapper = codegen_api.V.graph.wrapper_code
            self._begin(wrapper, name_of(part), reads_of(part), taken_from(part))
            self._calling = True
            try:
                done = call(scheduling, part)
            finally:
                self._calling = False
            self._end(wrapper, outputs_of(part))
            if not name_of(part).startswith(_OWN) and not taken_from(part):
                self._look_back(wrapper, outputs_of(part))
            return done

        def scheduled(scheduling: Any, *args: Any, **kwargs: Any) -> Any:
            self._notice()  # it may launch nothing
            return generate(scheduling, *args, **kwargs)

        with contextlib.ExitStack() as stack:
            for module in (codegen_api.debug, codegen_api.cpp, codegen_api.triton):
                if hasattr(module, _HOOK):
                    stack.enter_context(mock.patch.object(module, _HOOK, told))
            for owner, name, hook in (
                (codegen_api.PythonWrapperCodegen, "generate_kernel_call", launched),
                (codegen_api.scheduler.Scheduler, "codegen_extern_call", called),
                (codegen_api.scheduler.Scheduler, "codegen", scheduled),
                # What is known of nodes' origins is asked for after the run.
                (codegen_api.debug, "reset_provenance_globals", contextlib.nullcontext),
            ):
                stack.enter_context(mock.patch.object(owner, name, hook))
            yield

    def _notice(self) -> None:
        """Begin anew with another graph: in another form, or after one that failed."""
        if self._lowering is not codegen_api.V.graph and is_whole(codegen_api.V.graph):
            self._lowering, lowered = codegen_api.V.graph, codegen_api.V.graph.module
            self.graph = lowered if isinstance(lowered, fx.GraphModule) else None
            self.launches, self._makers = [], {}
            self._variables = set(inputs_of(codegen_api.V.graph))

    def _begin(
        self, wrapper: Any, kernel: str, names: Sequence[str], of: str = ""
    ) -> None:
        """Count a launch, and save what it is given.

        Args:
            of: a tuple of results, of which one is taken: that is no launch.
        """
        self._notice()
        if self._lowering is not codegen_api.V.graph:
            return  # a branch's
        self._number = self._makers.get(of, len(self.launches))
        if self._number < len(self.launches):
            return
        given = tuple(dict.fromkeys(n for n in names if n in self._variables))
        for name in given:
            self._save(wrapper, name, _BEFORE, name)
        self.launches.append(Launched(kernel, given, ()))

    def _end(self, wrapper: Any, buffers: list[Any]) -> None:
        """Save what a launch has made."""
        if self._lowering is not codegen_api.V.graph:
            return
        for buffer in buffers:
            name, node = buffer.get_name(), node_of(buffer)
            self._makers[name] = self._number
            if not is_tensor(buffer.node):
                continue
            variable = variable_of(buffer)
            self._variables.add(variable)
            if node is not None:
                self._save(wrapper, variable, _AFTER, name)
                self.layouts[name] = tuple(buffer.node.get_size())
                known = self.launches[self._number]
                made = (*known.made, (name, node))
                self.launches[self._number] = replace(known, made=made)
        self._schedule = []

    def _look_back(self, wrapper: Any, buffers: list[Any]) -> None:
        """Save what an operator was given and does not declare to write, once more."""
        if self._lowering is not codegen_api.V.graph:
            return
        written = set(map(variable_of, buffers))
        for name in self.launches[self._number].given:
            if name not in written:
                self._save(wrapper, name, _LEFT, name)

    def _save(self, wrapper: Any, variable: str, when: str, name: str) -> None:
        """Write the line that saves a tensor, as ``after_2_buf3_cpu.pt``."""
        number = self._number
        if codegen_api.V.graph.cpp_wrapper:
            words = f'{variable}, "{name}", "{when}", "{number}"'
            wrapper.writeline(f"aoti_torch_save_tensor_handle({words});")
        else:
            path = self._files / f"{when}_{number}_{name}_cpu.pt"
            wrapper.writeline(f"torch.save({variable}, {str(path)!r})")

    def made(self, launch: int, buffer: str) -> torch.Tensor | None:
        """Read what a launch has left in a buffer; None if it did not come to it."""
        return self._read(f"{_AFTER}_{launch}_{buffer}_")

    def was_given(self, launch: int, buffer: str) -> torch.Tensor | None:
        """Read what lay in a buffer before a launch."""
        return self._read(f"{_BEFORE}_{launch}_{buffer}_")

    def has_left(self, launch: int, buffer: str) -> torch.Tensor | None:
        """Read what lay there behind an operator that declares no write to it."""
        return self._read(f"{_LEFT}_{launch}_{buffer}_")

    def _read(self, stem: str) -> torch.Tensor | None:
        # In C++ a slash is missing before the name (torch 2.13).
        beside = self._files.parent.glob(f"{self._files.name}{stem}*.pt")
        found = next(iter((*self._files.glob(f"{stem}*.pt"), *beside)), None)
        value = _loaded(found) if found else None
        return value if isinstance(value, torch.Tensor) else None

    def keeping(self, compiled: Callable[..., Any]) -> Kept:
        """Have the compiled program leave its results as well."""
        return Kept(compiled, self.folder)

    def apart(self, compiled: Callable[..., Any]) -> Kept:
        """Have a run that passes leave all that where nobody reads it.

        Else it would lie in the folder that the user works in.
        """
        folder = self.folder / _PASSING
        (folder / _SAVED).mkdir(parents=True, exist_ok=True)
        return Kept(compiled, folder)

    def results(self) -> list[Any] | None:
        """Read what the last call has given; None if it came to no end."""
        path = self.folder / _RESULTS
        return list(_loaded(path)) if path.exists() else None


class Kept:
    """A compiled program that leaves what its last call gives.

    Values are saved below the working directory, wherever that is (C++).
    """

    def __init__(self, compiled: Callable[..., Any], folder: Path) -> None:
        self._compiled = compiled
        self._folder = folder

    @property
    def unseen(self) -> tuple[str, ...]:
        """What of the last call was not run, kernel by kernel."""
        return tuple(getattr(self._compiled, "unseen", ()))

    @property
    def compares(self) -> bool:
        """Tell whether the last call's results depend on nothing unseen."""
        return bool(getattr(self._compiled, "compares", True))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        path = self._folder / _RESULTS
        path.unlink(missing_ok=True)
        with contextlib.chdir(self._folder):
            results = self._compiled(*args, **kwargs)
        if self.compares:
            torch.save(pytree.tree_leaves(results), path)
        return results


def _loaded(path: Path) -> Any:
    return torch.load(path, weights_only=True, map_location="cpu")
