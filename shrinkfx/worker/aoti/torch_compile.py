"""Compile programs with Inductor as ``torch.compile`` does."""

from __future__ import annotations

import contextlib
import copy
import glob
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.worker.aoti.backend import CACHE
from shrinkfx.worker.eager.intermediates import copy_value
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.graph.describe import depends_on_data, mutates
from shrinkfx.worker.model import Inputs, user_placeholders
from shrinkfx.worker.private_api import inductor_api
from shrinkfx.worker.private_api.graph_api import pytree

KERNELS = "inductor"
"""The folder of the kernels that checks share, in the folder of a server."""

WITH_CACHE = {"fx_graph_cache": True}
"""Options with which Inductor takes the code of an earlier compilation."""

CAPTURES = {
    "capture_dynamic_output_shape_ops": True,
    "capture_scalar_outputs": True,
}
"""Options without which Dynamo refuses a size or a number that is read from a tensor.

A repro sets them.
"""


class _CompiledOnly(BaseException):
    """The program is compiled, and it is not to run yet."""


class CompiledProgram:
    """A program that ``torch.compile`` has compiled.

    Dynamo compiles a program at its first call. So that call stops before the compiled
    code runs, and the stages of a check are those of the other backends. Dynamo may
    compile again at a call with other sizes; the stage is then ``COMPILE`` meanwhile.

    Args:
        cache: a folder for compiled kernels, which checks share. A kernel is found by
            the digest of its text. Programs are lowered again each time, unless the
            options are those of ``WITH_CACHE``.
        inputs: the inputs to compile it for; the sizes that the program declares
            dynamic are dynamic, and all others are not.
    """

    def __init__(
        self,
        exported: ExportedProgram,
        cache: Path,
        options: InductorOptions,
        note: Note,
        inputs: Inputs,
    ) -> None:
        os.environ[CACHE] = str(cache)
        self._note, self._options = note, {"fx_graph_cache": False, **options}
        self._dynamic_dims = find_dynamic_dims(exported, inputs)
        self._captures = CAPTURES if depends_on_data(exported) else {}
        self._only_compiles = True
        module = exported.module(check_guards=False)
        module._forward_pre_hooks.clear()  # they compare inputs with the ranges
        _pass_closures(module)
        _return_values(module, exported)
        if mutates(exported):
            module = copy.deepcopy(module)  # the program keeps its weights and buffers
        # Dynamo would trace how a GraphModule reports an error, and hide the error.
        self._compiled = torch.compile(
            module.forward, backend=self._compile, fullgraph=True
        )
        note(Stage.COMPILE)
        try:
            args, kwargs = pytree.tree_map(copy_value, (inputs.args, inputs.kwargs))
            with torch.no_grad():
                self(*args, **kwargs)
        except _CompiledOnly:
            self._only_compiles = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = pytree.tree_leaves((args, kwargs))
        for place, dims in self._dynamic_dims.items():
            # mark_dynamic would refuse a size that an operator fixes.
            inductor_api.maybe_mark_dynamic(values[place], dims)
        with inductor_api.dynamo_config.patch(self._captures):
            try:
                return self._compiled(*args, **kwargs)
            except inductor_api.BackendCompilerFailed as error:
                if type(error) is not inductor_api.BackendCompilerFailed:
                    raise  # Inductor's own error, which a repro raises as well
                raise error.inner_exception from None

    def _compile(
        self, graph: torch.fx.GraphModule, inputs: list[Any]
    ) -> Callable[..., Any]:
        """Compile a graph with Inductor, as a backend of Dynamo."""
        self._note(Stage.COMPILE)
        compile_fx = inductor_api.compile_fx.compile_fx
        compiled = compile_fx(graph, inputs, config_patches=self._options)
        if not self._only_compiles:
            self._note(Stage.RUN)

        def run(*values: Any) -> Any:
            if self._only_compiles:
                raise _CompiledOnly
            return compiled(*values)

        return run


def share_kernels(cache: Path, shared: Path, *, age_s: float = 0.0) -> None:
    """Link recent kernels of a cache into another one.

    Cached graphs are not shared, because their key does not cover lowerings that a
    preload registers. The name of a kernel is the digest of its source and its command.

    Args:
        age_s: the least age, in seconds; a younger file may be incomplete.
    """
    latest = time.time() - age_s
    for name in glob.glob("??/*.so", root_dir=cache):
        file, place = cache / name, shared / name
        with contextlib.suppress(OSError):  # it exists, or links cannot be made
            if latest - _RECENT_S <= file.stat().st_mtime <= latest:
                place.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, place)


COMPLETE_S = 5.0
"""The age in seconds from which a kernel is assumed to be complete."""

_RECENT_S = 3_600.0
"""The age in seconds of the oldest kernels to link; a cache may be large."""


def share_user_kernels(folder: Path) -> None:
    """Link recent kernels of the user's cache: the failing script may need them."""
    cache = os.environ.get(CACHE) or inductor_api.default_cache_dir()
    share_kernels(Path(cache), folder / KERNELS, age_s=COMPLETE_S)


def _return_values(module: torch.fx.GraphModule, exported: ExportedProgram) -> None:
    """Return values that are written to a buffer or an input, as a repro does.

    The module would return the buffer or input itself.
    """
    names = {node.name for node in exported.graph.nodes}
    output = module.graph.output_node()
    for node in output.all_input_nodes:
        if node.target is torch.ops.aten.copy_.default and node.name not in names:
            value = node.args[1]
            assert isinstance(value, torch.fx.Node)
            output.replace_input_with(node, value)
    module.recompile()


def _pass_closures(module: torch.fx.GraphModule) -> None:
    """Pass the values that flex_attention's functions read in closures.

    Dynamo accepts no other form; the repro uses it as well.
    """
    flex_attention = torch.ops.higher_order.flex_attention
    for node in module.graph.find_nodes(op="call_function", target=flex_attention):
        query, key, value, score, (*mask, masked), *rest, of_score, of_mask = node.args
        with module.graph.inserting_before(node):
            closures = [
                module.graph.call_function(_bind, (function, *values))
                for function, values in ((score, of_score), (masked, of_mask))
            ]
        score, masked = closures
        node.args = (query, key, value, score, (*mask, masked), *rest)


def _bind(function: Callable[..., Any], *values: Any) -> Callable[..., Any]:
    return lambda *args: function(*args, *values)


def find_dynamic_dims(
    exported: ExportedProgram, inputs: Inputs
) -> Mapping[int, list[int]]:
    """Return the dynamic dims of each flattened input that has some."""
    found: dict[int, list[int]] = {}
    for place, node in enumerate(user_placeholders(exported, inputs)):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            sizes = enumerate(value.shape)
            dims = [dim for dim, size in sizes if isinstance(size, torch.SymInt)]
            found |= {place: dims} if dims else {}
    return found
