"""Copy a CPU program to a fake GPU, so that Inductor generates CUDA code for it.

The input program does not change. All tensors of the copy are fake, so no GPU memory is
needed.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from shrinkfx.worker.interpreter.codegen.fake_cuda import DEVICE, attach_constant
from shrinkfx.worker.private_api import cuda_api
from shrinkfx.worker.private_api.graph_api import FakeTensor, pytree

_ATEN = torch.ops.aten
_MUTATIONS = frozenset(
    {OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION}
    | {k for k in OutputKind if k.name == "PARAMETER_MUTATION"}
)


def copy_to_fake_cuda(exported: ExportedProgram) -> ExportedProgram:
    """Copy a program to the fake GPU, with FakeTensors for all its tensors."""
    root = copy.deepcopy(exported.graph_module)
    signature = copy.deepcopy(exported.graph_signature)
    for old, new in zip(exported.graph.nodes, root.graph.nodes, strict=True):
        if old.name != new.name:  # fx renames nodes with a builtin's name: input
            signature.replace_all_uses(old.name, new.name)
    convert = _Converter(exported)
    for module in root.modules():
        if isinstance(module, fx.GraphModule):
            _move_graph(module, convert)
    example = exported.example_inputs
    return ExportedProgram(
        root=root,
        graph=root.graph,
        graph_signature=signature,
        state_dict={k: convert(v) for k, v in exported.state_dict.items()},
        range_constraints=copy.copy(exported.range_constraints),
        module_call_graph=list(exported.module_call_graph),
        example_inputs=example and pytree.tree_map(convert, example),
        constants={k: convert(v) for k, v in exported.constants.items()},
        verifiers=exported.verifiers,
    )


class _Converter:
    """Converts tensors to FakeTensors of one mode; tied weights stay tied."""

    def __init__(self, exported: ExportedProgram) -> None:
        from shrinkfx.worker.private_api.graph_api import FakeTensorMode

        values = (node.meta.get("val") for node in exported.graph.nodes)
        modes = (getattr(value, "fake_mode", None) for value in values)
        mode = next((m for m in modes if m is not None), None)
        self._mode: Any = mode or FakeTensorMode()
        self._fakes: dict[int, torch.Tensor] = {}
        self._retained: list[torch.Tensor] = []

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._fakes:
            self._retained.append(value)  # otherwise another tensor could get its id
            self._fakes[id(value)] = self._fake(value)
        return self._fakes[id(value)]

    def _fake(self, value: torch.Tensor) -> torch.Tensor:
        with self._mode:
            fake = torch.empty_strided(
                value.size(), value.stride(), dtype=value.dtype, device=DEVICE
            )
        if isinstance(value, torch.nn.Parameter):
            fake = torch.nn.Parameter(fake, requires_grad=value.requires_grad)
        wrapped = cuda_api.is_functorch_wrapped_tensor(value)
        if not isinstance(value, FakeTensor) and not wrapped:
            attach_constant(fake, value)
        return fake


def _move_graph(module: fx.GraphModule, convert: Callable[[Any], Any]) -> None:
    """Rewrite one graph for the fake GPU, in place."""
    for node in list(module.graph.nodes):
        if node.target is _ATEN._assert_tensor_metadata.default:
            module.graph.erase_node(node)  # it asserts the device, too
            continue
        if node.target is _ATEN.view.default:
            # Strides on a CPU may allow views that strides on a GPU do not.
            node.target = _ATEN.reshape.default
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": DEVICE}
        node.args = pytree.tree_map(_move_argument, node.args)
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(convert, node.meta["val"])
    for name, value in list(vars(module).items()) + list(module._buffers.items()):
        if isinstance(value, torch.Tensor):
            setattr(module, name, convert(value))
    module.recompile()


def _move_argument(argument: Any) -> Any:
    return DEVICE if isinstance(argument, torch.device) else argument


def lift_mutations(exported: ExportedProgram) -> fx.GraphModule:
    """Return the graph module whose inputs are weights, buffers, constants and inputs.

    The graph writes buffer and input mutations back itself, as in the graph that
    AOTInductor lowers; only the user outputs remain as outputs.
    """
    module: fx.GraphModule = exported.graph_module
    signature = exported.graph_signature
    graph = module.graph
    placeholders = {n.name: n for n in graph.nodes if n.op == "placeholder"}
    by_target = {
        spec.target: placeholders[spec.arg.name]
        for spec in signature.input_specs
        if spec.target and hasattr(spec.arg, "name")
    }
    (output,) = graph.find_nodes(op="output")
    outputs = []
    with graph.inserting_before(output):
        for spec, value in zip(signature.output_specs, output.args[0], strict=True):
            if spec.kind in _MUTATIONS:
                dest = by_target.get(spec.target) or placeholders[str(spec.target)]
                graph.call_function(_ATEN.copy_.default, (dest, value))
            elif spec.kind is OutputKind.USER_OUTPUT:
                outputs.append(value)
    output.args = (tuple(outputs),)
    module.recompile()
    return module


@contextlib.contextmanager
def run_fakes_on_device() -> Iterator[None]:
    """Run the fake kernels of custom operators under their first tensor's device.

    Otherwise a fake kernel that calls ``torch.empty(n)`` would return a CPU tensor.
    """
    from shrinkfx.worker.private_api.cuda_api import Kernel, simple_registry

    entries = list(simple_registry.singleton._data.values())
    holders = [e.fake_impl for e in entries if e.fake_impl.kernel is not None]
    for holder in holders:
        fake = holder.kernel
        holder.kernels.append(Kernel(_OnDevice(fake.func), fake.source))
    try:
        yield
    finally:
        for holder in holders:
            holder.kernels.pop()


class _OnDevice:
    """Wraps a fake kernel to run under the device of its first tensor argument."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        first = next(tensors, None)
        if first is None:
            return self._function(*args, **kwargs)
        with torch.device(first.device):
            return self._function(*args, **kwargs)
