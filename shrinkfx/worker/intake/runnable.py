"""Export a graph that torch.compile dumped as Python code.

This executes that code, so the caller must have the user's consent. The file
defines ``mod``, and ``load_args(reader)``, which describes the arguments and their
symbolic sizes:

    s77 = 5
    def load_args(reader):
        reader.symint(5, expr='s77')
        buf0 = reader.storage(None, 16*s77)
        reader.tensor(buf0, (s77, 4), is_leaf=True)
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.answers import Exported
from shrinkfx.protocol.captured import STACK_TRACES
from shrinkfx.protocol.requests import ExportRunnable
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.loading.devices import read_cuda_storages_on
from shrinkfx.worker.origin import graphs_of
from shrinkfx.worker.printing.module import save_program_or_source
from shrinkfx.worker.private_api import dump_api

_CUDA = re.compile(r"device\(type='cuda'(?:, index=\d+)?\)")
_TO_CUDA = re.compile(r"""\.to\(["']cuda(?::\d+)?["']\)""")


def export_runnable(task: ExportRunnable, note: Note, folder: Path) -> Exported:
    """Export the graph with its arguments, and save the program.

    A CUDA graph is exported on the CPU if there is no GPU. It is saved as a CUDA
    program, so that the interpreter can check its kernels.
    """
    note(Stage.REBUILD)
    os.chdir(folder)
    text = Path(task.path).read_text(encoding="utf-8")
    for_cuda = _CUDA.search(text) is not None
    on_cpu = for_cuda and not torch.cuda.is_available()
    if on_cpu:
        read_cuda_storages_on("cpu")
        text = _TO_CUDA.sub(".to('cpu')", _CUDA.sub("device(type='cpu')", text))
    torch.manual_seed(0)  # for values that the file does not contain
    text = _OF_INDUCTOR.sub(r"\1(", text).replace(_VIEW, _RESHAPE)
    text = _NESTED.sub(r"(self, \2):\n\1pass", text)
    names = _run(text, task.path, "repro", _RANDOM)
    if task.constants:
        state = torch.load(task.constants, weights_only=True, map_location="cpu")
        names["mod"].load_state_dict(state)
    reader = _read(names, task.save_dir)
    module = _OnTensors(names["mod"], reader)
    with torch.no_grad():
        exported = _export(module, reader)
    _set_stack_traces(exported, task.path, text, names.get(STACK_TRACES, {}))
    save_program_or_source(exported, Path(task.program), for_cuda=on_cpu)
    return Exported(
        inputs=len(reader.tensors),
        made_up=reader.made_up,
        fixed=tuple(sorted(module.fixed)),
        left_out=len(module.dropped),
        lacks_gpu=on_cpu,
    )


def _set_stack_traces(
    exported: ExportedProgram, path: str, text: str, traces: Mapping[str, str]
) -> None:
    """Replace the origins of nodes in a file by those in the user's code.

    Args:
        traces: the user's stack traces by the variables that the file assigns.
    """
    lines = text.splitlines()
    in_file = re.compile(rf'File "{re.escape(path)}", line (\d+)')
    graphs = graphs_of(exported.graph_module).values()
    for node in (node for graph in graphs for node in graph.nodes):
        node.meta.pop("nn_module_stack", None)  # of the module around the graph
        places = in_file.findall(node.stack_trace or "")
        if places:
            variable = lines[int(places[-1]) - 1].partition("=")[0].strip()
            node.stack_trace = traces.get(variable) if traces else node.stack_trace


_VIEW, _RESHAPE = "torch.ops.aten.view.default(", "torch.ops.aten.reshape.default("
"""Inductor makes the same replacement (``view_to_reshape``).

In a backward graph, a saved value has the strides that the compiled forward graph gave
it, and not those with which the graph was traced. They may forbid a view.
"""


_NESTED = re.compile(r"\(self.*\):\n( +)(.*), = fx_pytree\.tree_flatten_spec\(.*\)")
"""The begin of ``forward`` in a graph with the nested inputs of ``torch.export``; the
arguments in the file are flat.
"""


def _draw_random(
    size: Sequence[int], device: torch.device, mode: str, offset: int = 0
) -> torch.Tensor:
    draw: Callable[..., torch.Tensor] = {"rand": torch.rand, "randn": torch.randn}[mode]
    return draw(size, device=device)


def _draw_integers(
    low: int, high: int, size: Sequence[int], device: torch.device, offset: int = 0
) -> torch.Tensor:
    return torch.randint(low, high, size, device=device)


_RANDOM = {
    "inductor_seeds": lambda count, device: device,
    "inductor_lookup_seed": lambda seeds, index: getattr(seeds, "device", seeds),
    "inductor_random": _draw_random,
    "inductor_randint": _draw_integers,
}
"""Functions in place of Inductor's random operators, which need seeds of Inductor.

They draw from PyTorch's generator, as the operators before Inductor's passes do. A seed
is the device to draw on.
"""

_OF_INDUCTOR = re.compile(rf"torch\.ops\.prims\.({'|'.join(_RANDOM)})\.default\(")


def _run(
    text: str, path: str, name: str, functions: Mapping[str, object]
) -> dict[str, Any]:
    jagged = {size: int(size[1:]) for size in _JAGGED.findall(text)}
    known = {"__name__": name, "__file__": path, "nan": math.nan}
    names: dict[str, Any] = {**known, **functions, **jagged}
    try:
        exec(compile(text, path, "exec"), names)
    except SystemExit as ended:  # would end the child silently
        raise RuntimeError(f"it exits with {ended.code}") from ended
    return names


_JAGGED = re.compile(r"\bj\d+\b")
"""The size of a nested tensor's jagged dim, which PyTorch writes by name only. Which
number it is does not matter: no dim of the tensors that hold the values has this size.
"""


def _read(names: dict[str, Any], save_dir: str) -> _Reader:
    """Call the file's ``load_args`` with symbolic sizes; return the filled reader."""
    for name, value in names.items():
        if type(value) is int and _SYMBOL.fullmatch(name):
            names[name] = Size(value, name)
    reader = _Reader(save_dir or None)
    names["load_args"](reader)
    return reader


_SYMBOL = re.compile(r"[a-z]+\d+")


class Size(int):
    """A dynamic size: the value of a symbol, or a number computed from such values.

    Attributes:
        name: the symbol, or '' for a computed size.
    """

    name: str

    def __new__(cls, value: int, name: str = "") -> Size:
        size = super().__new__(cls, value)
        size.name = name
        return size


def _keeping(work: Callable[[int, int], int], *, swapped: bool) -> Any:
    def worked_out(self: Size, other: object) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        pair = (int(other), int(self)) if swapped else (int(self), int(other))
        return Size(work(*pair))

    return worked_out


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    _work = getattr(operator, _name)
    setattr(Size, f"__{_name}__", _keeping(_work, swapped=False))
    setattr(Size, f"__r{_name}__", _keeping(_work, swapped=True))


class _Reader(dump_api.InputReader):
    """Loads the arguments, and records the names of their sizes.

    Attributes:
        made_up: number of tensors with generated values, because the values of the
            failing run are missing.
        tensors: the tensors among the arguments.
        sizes: for each tensor, its dynamic sizes by dim.
        expressions: by argument number, the expression of a symbolic integer.
    """

    def __init__(self, save_dir: str | None) -> None:
        super().__init__(save_dir)
        self.made_up = 0
        self.tensors: list[torch.Tensor] = []
        self.sizes: list[dict[int, Size]] = []
        self.expressions: dict[int, str] = {}
        self._random: set[int] = set()

    def storage(
        self,
        storage_hash: str | None,
        nbytes: int,
        **kwargs: Any,
    ) -> torch.UntypedStorage:
        storage: torch.UntypedStorage = super().storage(
            storage_hash, int(nbytes), **kwargs
        )
        loc = self.store.loc if self.store is not None else None
        if not (loc and storage_hash and Path(loc, "storages", storage_hash).exists()):
            self._random.add(id(storage))
        return storage

    def tensor(
        self,
        storage: torch.UntypedStorage,
        shape: Sequence[int],
        stride: Sequence[int] | None = None,
        *,
        storage_offset: int | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        result: torch.Tensor = super().tensor(
            storage,
            tuple(map(int, shape)),
            None if stride is None else tuple(map(int, stride)),
            storage_offset=None if storage_offset is None else int(storage_offset),
            **kwargs,
        )
        self.args[-1] = result = result.detach()
        self.tensors.append(result)
        dims = {dim: size for dim, size in enumerate(shape) if isinstance(size, Size)}
        self.sizes.append(dims)
        self.made_up += id(storage) in self._random
        return result

    def symint(self, *values: Any, **kwargs: Any) -> Any:
        value = values[0]
        # Dumps from before torch 2.12 or so have no expression for the number.
        expression = kwargs.get("expr") or getattr(value, "name", "") or str(int(value))
        self.expressions[len(self.args)] = expression
        self.args.append(int(value))
        return value


class _OnTensors(torch.nn.Module):
    """Wraps a graph so that it takes and returns only tensors, as AOTInductor requires.

    A number that equals the symbolic size of a tensor is read from that tensor. The
    findings are kept in sets, because export restores the attributes of a module.

    Attributes:
        fixed: expressions of numbers that become constants.
        dropped: positions of results that are not tensors.
    """

    def __init__(self, inner: torch.nn.Module, reader: _Reader) -> None:
        super().__init__()
        self.inner = inner
        self.constants = [
            None if isinstance(argument, torch.Tensor) else (argument,)
            for argument in reader.args
        ]
        self.expressions = reader.expressions
        self.places = {
            size.name: (number, dim)
            for number, sizes in enumerate(reader.sizes)
            for dim, size in sizes.items()
            if size.name
        }
        self.fixed: set[str] = set()
        self.dropped: set[int] = set()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.inner(*self._arguments(tensors))
        results = result if isinstance(result, (tuple, list)) else (result,)
        outputs = {n: r for n, r in enumerate(results) if isinstance(r, torch.Tensor)}
        self.dropped.update(n for n in range(len(results)) if n not in outputs)
        # The graph of an optimizer only writes to its inputs, which export cannot save.
        return tuple(outputs.values()) or tensors

    def _arguments(self, tensors: Sequence[torch.Tensor]) -> Iterator[object]:
        sizes = {
            name: tensors[number].size(dim)
            for name, (number, dim) in self.places.items()
        }
        remaining = iter(tensors)
        for number, constant in enumerate(self.constants):
            if constant is None:
                yield next(remaining)
            elif number in self.expressions:
                yield self._worked_out(self.expressions[number], sizes, constant[0])
            else:
                yield constant[0]

    def _worked_out(
        self, expression: str, sizes: dict[str, int], default: object
    ) -> object:
        try:
            value: object = eval(expression, {"__builtins__": {}}, sizes)
        except (NameError, SyntaxError, TypeError):
            value = default
        if type(value) is int:
            self.fixed.add(expression)
        return value


def _export(module: _OnTensors, reader: _Reader) -> ExportedProgram:
    shapes = None
    if any(reader.sizes):
        dims = tuple({dim: Dim.AUTO for dim in sizes} for sizes in reader.sizes)
        shapes = {"tensors": dims}
    return torch.export.export(module, tuple(reader.tensors), dynamic_shapes=shapes)
