"""Make a compiled program save the arguments and results of each of its kernels.

The generated wrapper gets a line before and after each launch, and each call of an
operator, that saves tensors to files. The kernels themselves do not change.

Private APIs: ``Scheduler.codegen_extern_call`` and the provenance hook of
torch/_inductor/debug.py, which receives a kernel's part of the schedule before its
launch (2.11 to 2.13); the line in C++ is that of codegen/debug_utils.py.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import fx

from shrinkfx.worker.private_api import codegen_api
from shrinkfx.worker.private_api.graph_api import pytree

_HOOK = "set_kernel_post_grad_provenance_tracing"
_BEFORE, _AFTER = "before", "after"
_RESULTS = "results.pt"
_PASSING = "passing"
_SAVED = Path("tmp", "aoti_torch")
"""The folder below the working directory where AOTInductor's C++ saves tensors."""


def wrap_method(
    owner: Any, name: str, hook: Callable[..., Any]
) -> contextlib.AbstractContextManager[Any]:
    """Patch a method, class method or function to call a hook in its place.

    Args:
        hook: gets the original function, and then the arguments.
    """
    method = getattr(owner, name)
    original = method.__func__ if inspect.ismethod(method) else method

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return hook(original, *args, **kwargs)

    new = classmethod(wrapped) if inspect.ismethod(method) else wrapped
    return mock.patch.object(owner, name, new)


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch of a kernel, or a call of an operator.

    Attributes:
        arguments: its arguments: buffers of earlier launches, inputs and weights.
        made: pairs of a buffer that it writes and the node whose value the buffer then
            holds.
    """

    kernel: str
    arguments: tuple[str, ...]
    made: tuple[tuple[str, fx.Node], ...]


@dataclass
class Recording:
    """The launches of the generated code, and the folder where a run saves values.

    Attributes:
        graph: the graph that Inductor lowered.
    """

    folder: Path
    graph: fx.GraphModule | None = None
    launches: list[RecordedLaunch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._schedule: list[Any] = []
        self._variables: set[str] = set()
        self._makers: dict[str, int] = {}
        self._number, self._calling = 0, False
        self._lowering: object = None
        self._files = self.folder / _SAVED

    @contextlib.contextmanager
    def record_codegen(self) -> Iterator[None]:
        """Record the code that is generated in the block; add the lines that save."""
        self._files.mkdir(parents=True, exist_ok=True)
        wrapper, scheduler = (
            codegen_api.PythonWrapperCodegen,
            codegen_api.scheduler.Scheduler,
        )
        with contextlib.ExitStack() as stack:
            for module in (codegen_api.debug, codegen_api.cpp, codegen_api.triton):
                if hasattr(module, _HOOK):
                    stack.enter_context(
                        wrap_method(module, _HOOK, self._record_schedule)
                    )
            for owner, name, hook in (
                (wrapper, "generate_kernel_call", self._launch),
                (scheduler, "codegen_extern_call", self._call),
                (scheduler, "codegen", self._generate),
            ):
                stack.enter_context(wrap_method(owner, name, hook))
            # The provenance of nodes is needed after the run.
            reset = "reset_provenance_globals"
            stack.enter_context(
                mock.patch.object(codegen_api.debug, reset, contextlib.nullcontext)
            )
            yield

    def _record_schedule(
        self, hook: Any, schedule: Any, *args: Any, **kwargs: Any
    ) -> Any:
        self._schedule = list(schedule) if isinstance(schedule, Sequence) else []
        return hook(schedule, *args, **kwargs)

    def _launch(
        self, launch: Any, wrapper: Any, name: str, args: Any, *more: Any, **kw: Any
    ) -> Any:
        if self._calling:  # an operator's own kernel
            return launch(wrapper, name, args, *more, **kw)
        names = [a for a in args if isinstance(a, str)]
        self._begin(wrapper, name, names)
        result = launch(wrapper, name, args, *more, **kw)
        buffers = [b for s in self._schedule for b in list_outputs(s)]
        self._end(wrapper, [b for b in buffers if find_variable(b) in names])
        return result

    def _call(self, call: Any, scheduling: Any, part: Any) -> Any:
        wrapper = codegen_api.V.graph.wrapper_code
        source = find_source_tuple(part)
        self._begin(wrapper, get_operator_name(part), list_reads(part), source)
        self._calling = True
        try:
            result = call(scheduling, part)
        finally:
            self._calling = False
        self._end(wrapper, list_outputs(part))
        return result

    def _generate(
        self, generate: Any, scheduling: Any, *args: Any, **kwargs: Any
    ) -> Any:
        self._reset_for_new_graph()  # now, because the graph may have no launches
        return generate(scheduling, *args, **kwargs)

    def _reset_for_new_graph(self) -> None:
        """Start over if Inductor lowers another graph, as after a failed attempt."""
        if self._lowering is not codegen_api.V.graph and is_program_graph(
            codegen_api.V.graph
        ):
            self._lowering, lowered = codegen_api.V.graph, codegen_api.V.graph.module
            self.graph = lowered if isinstance(lowered, fx.GraphModule) else None
            self.launches, self._makers = [], {}
            self._variables = set(list_graph_inputs(codegen_api.V.graph))

    def _begin(
        self, wrapper: Any, kernel: str, names: Sequence[str], source: str = ""
    ) -> None:
        """Count a launch, and save its arguments.

        Args:
            source: the name of the tuple that a result is taken from; taking it is no
                launch of its own.
        """
        self._reset_for_new_graph()
        if self._lowering is not codegen_api.V.graph:
            return  # the graph of a branch
        self._number = self._makers.get(source, len(self.launches))
        if self._number < len(self.launches):
            return
        arguments = tuple(dict.fromkeys(n for n in names if n in self._variables))
        for name in arguments:
            self._save(wrapper, name, _BEFORE, name)
        self.launches.append(RecordedLaunch(kernel, arguments, ()))

    def _end(self, wrapper: Any, buffers: list[Any]) -> None:
        """Save the results of a launch."""
        if self._lowering is not codegen_api.V.graph:
            return
        for buffer in buffers:
            name, node = buffer.get_name(), find_held_node(buffer)
            self._makers[name] = self._number
            if not is_tensor(buffer.node):
                continue
            variable = find_variable(buffer)
            self._variables.add(variable)
            if node is not None:
                self._save(wrapper, variable, _AFTER, name)
                launch = self.launches[self._number]
                made = (*launch.made, (name, node))
                self.launches[self._number] = replace(launch, made=made)
        self._schedule = []

    def _save(self, wrapper: Any, variable: str, when: str, name: str) -> None:
        """Write the line that saves a tensor to a file like ``after_2_buf3_cpu.pt``."""
        number = self._number
        if codegen_api.V.graph.cpp_wrapper:
            words = f'{variable}, "{name}", "{when}", "{number}"'
            wrapper.writeline(f"aoti_torch_save_tensor_handle({words});")
        else:
            path = self._files / f"{when}_{number}_{name}_cpu.pt"
            wrapper.writeline(f"torch.save({variable}, {str(path)!r})")

    def load_result(self, launch: int, buffer: str) -> torch.Tensor | None:
        """Load a buffer as it was after a launch; None if the run did not reach it."""
        return self._read(f"{_AFTER}_{launch}_{buffer}_")

    def load_argument_before(self, launch: int, buffer: str) -> torch.Tensor | None:
        """Load a buffer as it was before a launch."""
        return self._read(f"{_BEFORE}_{launch}_{buffer}_")

    def _read(self, prefix: str) -> torch.Tensor | None:
        # In C++ a slash is missing before the name (torch 2.13).
        misplaced = self._files.parent.glob(f"{self._files.name}{prefix}*.pt")
        path = next(iter((*self._files.glob(f"{prefix}*.pt"), *misplaced)), None)
        value = _loaded(path) if path else None
        return value if isinstance(value, torch.Tensor) else None

    def keep_results(self, compiled: Callable[..., Any]) -> ResultKeeper:
        """Wrap the compiled program to save its results as well."""
        return ResultKeeper(compiled, self.folder)

    def divert_results(self, compiled: Callable[..., Any]) -> ResultKeeper:
        """Wrap the compiled program of a passing run, whose values nobody reads.

        They are saved to a folder of their own, because otherwise they would be saved
        in the user's working directory.
        """
        folder = self.folder / _PASSING
        (folder / _SAVED).mkdir(parents=True, exist_ok=True)
        return ResultKeeper(compiled, folder)

    def load_results(self) -> list[Any] | None:
        """Load the results of the last call; None if it did not return."""
        path = self.folder / _RESULTS
        return list(_loaded(path)) if path.exists() else None


class ResultKeeper:
    """A compiled program that saves the results of its last call.

    It runs in the recording's folder, because C++ code saves below the working
    directory.
    """

    def __init__(self, compiled: Callable[..., Any], folder: Path) -> None:
        self._compiled = compiled
        self._folder = folder

    @property
    def unseen(self) -> tuple[str, ...]:
        """The kernels that the last call skipped or ran in part, with the reasons."""
        return tuple(getattr(self._compiled, "unseen", ()))

    @property
    def compares(self) -> bool:
        """Whether the last call's results depend on nothing that was not run."""
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


# Helpers for parts of Inductor's schedule: their inputs, outputs and nodes.
#
# Private APIs of torch/_inductor/scheduler.py and ir.py, 2.11 to 2.13.


def is_program_graph(lowering: Any) -> bool:
    """Return whether a graph is the program's, not that of a branch or loop body."""
    return type(lowering).__name__ == "GraphLowering"


def list_outputs(part: Any) -> list[Any]:
    """List the buffers that a part of the schedule computes.

    Markers such as ``EnableReduction`` have none.
    """
    get_outputs = getattr(part, "get_outputs", None)
    return list(get_outputs()) if get_outputs and not isinstance(part, type) else []


def list_graph_inputs(lowering: Any) -> list[str]:
    """Name the variables of inputs and weights that are tensors."""
    inputs = lowering.graph_inputs.items()
    tensors = [name for name, box in inputs if hasattr(box, "get_layout")]
    return [*tensors, *lowering.constants]


def find_source_tuple(part: Any) -> str:
    """Return the name of the tuple that a result is taken from, or ''."""
    if type(part.node).__name__ != "MultiOutput" or not part.node.inputs:
        return ""
    return str(getattr(part.node.inputs[0], "get_name", str)())


def find_variable(buffer: Any) -> str:
    """Return the variable that holds a buffer: the one that it mutates, or itself."""
    name = buffer.get_name()
    return str(codegen_api.V.graph.scheduler.mutation_real_name.get(name, name))


def list_reads(part: Any) -> list[str]:
    """Name the variables that a part of the schedule reads."""
    real = codegen_api.V.graph.scheduler.mutation_real_name
    names = sorted(dep.name for dep in part.read_writes.reads)
    return [real.get(name, name) for name in names]


def get_operator_name(part: Any) -> str:
    """Return the user-visible name of an operator's call: ``aten.sort.default``."""
    called = getattr(part.node, "op_overload", None)
    made_by = getattr(part.node, "python_kernel_name", None)
    return str(called or made_by or type(part.node).__name__)


def is_tensor(node: Any) -> bool:
    """Return whether a node is a tensor, and not a tuple or a call without results."""
    layout = getattr(node, "layout", None)
    return type(layout).__name__ not in ("MultiOutputLayout", "NoneLayout", "NoneType")


def find_held_node(buffer: Any) -> fx.Node | None:
    """Return the node whose value a buffer holds; None if it is unknown.

    Inductor names a buffer after the node whose value it holds *in the end*. If several
    operators write into it (``index_put``), only the last write yields that value.
    """
    graph, variable = codegen_api.V.graph, find_variable(buffer)
    real = graph.scheduler.mutation_real_name
    renamed = [name for name, holder in real.items() if holder == variable]
    if buffer.get_name() not in ([variable] if not renamed else renamed[-1:]):
        return None
    if not renamed:
        holder = buffer.node
    elif variable in graph.name_to_buffer:
        holder = graph.name_to_buffer[variable]
    else:
        return None  # an input or a weight
    node = holder.get_origin_node()
    return node if isinstance(node, fx.Node) else None
