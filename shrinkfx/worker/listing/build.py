"""An exported program from a printed one: its source code, and the export."""

from __future__ import annotations

import ast
import copy
import itertools
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from shrinkfx.program.listing.printed_program import (
    RETURN,
    Block,
    InputOrWeight,
    PrintedProgram,
    Run,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import Saved, TensorSpec, write_tensor_spec
from shrinkfx.protocol.source import Expression, Input, Source, Weight
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.graph.symbols import CannotRebuild
from shrinkfx.worker.listing.describe import make_from_spec
from shrinkfx.worker.loading.archive import execute_source, set_weight
from shrinkfx.worker.model import Inputs
from shrinkfx.worker.origin import set_origin
from shrinkfx.worker.printing.graph import callee, write_class, write_tensor
from shrinkfx.worker.printing.module import export
from shrinkfx.worker.private_api import archive_api

Saves = Mapping[str, torch.Tensor]
"""Saved values, by the keys of tensor specs."""


def build(
    listing: PrintedProgram,
    saved: Saves,
    taps: Sequence[str] = (),
    runs: Collection[Run] = (Run.EXAMPLE, Run.FAILING),
) -> RebuiltCandidate:
    """Export a printed program, and make its inputs.

    The nodes of the exported program get the names of the statements.

    Args:
        taps: statements whose values the program returns in addition.
        runs: the runs that the program has, even if their inputs equal the example.

    Raises:
        CannotRebuild: the printed program is not valid.
    """
    listing = _add_taps(listing, taps)
    try:
        with torch.no_grad():
            inputs, module, shapes = _make_inputs(listing, saved)
            exported = export(module, inputs[Run.EXAMPLE].args, shapes)
    except CannotRebuild:
        raise
    except Exception as error:
        raise CannotRebuild(f"{type(error).__name__}: {error}") from error
    return RebuiltCandidate(
        restore_statement_names(listing, exported),
        inputs[Run.EXAMPLE],
        inputs[Run.FAILING],
        outputs=tuple(_list_returned(listing)),
        passing=inputs[Run.PASSING] if Run.PASSING in runs else None,
    )


def _make_inputs(
    listing: PrintedProgram, saved: Saves
) -> tuple[dict[Run, Inputs], torch.nn.Module, Any]:
    """Make inputs and weights in the order of a repro, because seeds depend on it.

    Returns:
        The inputs by run, the module, and the declared dynamic shapes.
    """
    module, shapes = execute_source(statements_of(listing))
    torch.manual_seed(0)
    entries = [listing.find(name) for name in listing.main.arguments]
    example = [make_from_spec(each.recipe(), saved) for each in entries]
    inputs = {Run.EXAMPLE: Inputs(tuple(example), {})}
    for run in (Run.PASSING, Run.FAILING):
        values = (_own(each, run, saved) for each in entries)
        pairs = zip(values, example, strict=True)
        args = (default if made is None else made for made, default in pairs)
        inputs[run] = Inputs(tuple(args), {})
    for each in listing.weights:
        value = make_from_spec(each.recipe(), saved)
        if each.kind == "saved_object":
            value = archive_api.pickle_load(bytes(value.tolist()))
        set_weight(module, each.name, each.kind, value)
    return inputs, module, shapes


def _own(entry: InputOrWeight, run: Run, saved: Saves) -> Any:
    """Make the value of an input in a run; None if it is the example's value."""
    recipe = dict(entry.recipes).get(run)
    return None if recipe is None else make_from_spec(recipe, saved)


def _add_taps(listing: PrintedProgram, taps: Sequence[str]) -> PrintedProgram:
    """Make the program return more values, if it has statements of these names."""
    main, returned = listing.main, set(_list_returned(listing))
    defined = {line.name for line in main.statements if line.yields}
    more = [name for name in taps if name in defined - returned]
    if not more:
        return listing
    code = f"({', '.join([*_list_returned(listing), *more])},)"
    lines = (*main.statements[:-1], Statement(RETURN, code))
    return listing.with_block(replace(main, statements=lines))


def _list_returned(listing: PrintedProgram) -> list[str]:
    """List the expressions that the main block returns."""
    tree = ast.parse(listing.main.statements[-1].code, mode="eval").body
    values = tree.elts if isinstance(tree, (ast.Tuple, ast.List)) else [tree]
    return [ast.unparse(value) for value in values]


# Names and origins of statements, set on the nodes that export makes.
#
# Reports about a compiled program use the names of nodes. With these names they refer
# to statements, and to the operators of the input program that have the same names.

_PART = re.compile(r"(\w+)(\.shape)?\[(\d+)\]")
"""One of several results, or a size."""

_METHOD = "torch.ops.higher_order.call_torchbind"
"""The operator that calls methods of script objects."""

_ATTRIBUTE = re.compile(r"self\.(\w+)")


def restore_statement_names(
    listing: PrintedProgram, exported: ExportedProgram
) -> ExportedProgram:
    """Give the nodes of a printed program's export the names of its statements."""
    root = exported.graph_module
    renamed = _restore_block_names(listing, listing.main, root)
    signature = exported.module_call_graph[0].signature
    outputs = [spec.arg for spec in exported.graph_signature.output_specs]
    arguments = [*outputs, *(signature.outputs if signature else [])]
    for argument in {id(each): each for each in arguments}.values():
        name = getattr(argument, "name", None)
        if name in renamed:
            argument.name = renamed[name]
    return exported


def _restore_block_names(
    listing: PrintedProgram, block: Block, module: fx.GraphModule
) -> dict[str, str]:
    """Rename the nodes of a block, and of the blocks that it calls.

    Returns:
        New names of nodes, by old name.
    """
    found = _matches(block, module.graph)
    for node in module.graph.nodes:
        set_origin(node, found[node].origin if node in found else "")
    members = dict(_members(block, found))
    kinds = dict(block.members)
    for old, attribute in members.items():
        _restore_block_names(
            listing, listing.block(kinds[attribute]), getattr(module, old)
        )
    _move(module, members)
    wanted = {node: statement.name for node, statement in found.items()}
    if block is not listing.main:
        wanted |= dict(zip(_placeholders(module.graph), block.arguments, strict=False))
    before = [node.name for node in module.graph.nodes]
    _rename(module.graph, wanted)
    module.graph = copy.deepcopy(module.graph)  # registers the new names
    after = [node.name for node in module.graph.nodes]
    return dict(zip(before, after, strict=True))


def _matches(block: Block, graph: fx.Graph) -> dict[fx.Node, Statement]:
    """Match statements with nodes: operators in order, and parts of their results.

    Export may insert operators of its own, and remove unused ones.
    """
    found: dict[fx.Node, Statement] = {}
    placeholders = _placeholders(graph)
    known = {node.name: node for node in placeholders}
    if len(placeholders) == len(block.arguments):  # no weights among them
        known = dict(zip(block.arguments, placeholders, strict=True))
    operators = [node for node in graph.nodes if _is_operator(node)]
    for line in block.statements:
        part = _PART.fullmatch(line.code)
        if part is not None and part[1] in known:
            node = _find_part(known[part[1]], int(part[3]), is_size=bool(part[2]))
        elif line.yields and (line.is_operator or line.callee.startswith("self.")):
            called = line.callee if line.is_operator else _METHOD
            matching = (n for n in operators if callee(n.target) == called)
            node = next(matching, None)
            operators = operators[operators.index(node) + 1 :] if node else operators
        else:
            continue
        if node is not None and node not in found:
            known[line.name] = node
            found[node] = line
    return found


def _placeholders(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _is_operator(node: fx.Node) -> bool:
    """Return whether a node is an operator that does not just read a size."""
    read_size = str(node.target).startswith("aten.sym_")
    return bool(getattr(node.target, "namespace", "")) and not read_size


def _find_part(node: fx.Node, number: int, *, is_size: bool) -> fx.Node | None:
    """Find the node for one result of a node, or for one of its sizes."""
    target = torch.ops.aten.sym_size.int if is_size else operator.getitem
    for user in node.users:
        if user.target is target and user.args == (node, number):
            return user
    return None


def _members(
    block: Block, found: Mapping[fx.Node, Statement]
) -> Iterator[tuple[str, str]]:
    """Pair the subgraphs that operators take with their names in statements."""
    kinds = dict(block.members)
    for node, line in found.items():
        graphs = (n for n in node.all_input_nodes if n.op == "get_attr")
        names = (name for name in _ATTRIBUTE.findall(line.code) if name in kinds)
        for graph, name in zip(graphs, names, strict=False):
            yield str(graph.target), name


def _move(module: fx.GraphModule, members: Mapping[str, str]) -> None:
    """Rename the submodules of a module, if the new names are distinct and free."""
    new, others = set(members.values()), dict(module.named_children()).keys()
    if len(new) < len(members) or new & (others - members.keys()):
        return
    moved = {new: getattr(module, old) for old, new in members.items()}
    for old in members:
        delattr(module, old)
    for name, inner in moved.items():
        setattr(module, name, inner)
    for node in module.graph.nodes:
        if node.op == "get_attr":
            node.target = members.get(str(node.target), node.target)


def _rename(graph: fx.Graph, wanted: Mapping[fx.Node, str]) -> None:
    """Name nodes, and rename other nodes that have one of these names."""
    taken = {node.name for node in graph.nodes if node not in wanted}
    for node, name in wanted.items():
        if node.op != "placeholder" or name not in taken:
            node.name = name
    names = set(wanted.values())
    for node in graph.nodes:
        if node not in wanted and node.op != "placeholder" and node.name in names:
            free = (f"{node.name}_{n}" for n in itertools.count())
            node.name = next(name for name in free if name not in taken | names)


IN_FILE = Expression("", "")
"""The expression for a value that the script reads from its data file by name."""

_DEVICE = re.compile(r"torch\.device\([^()]*\)")


def print_listing(
    listing: PrintedProgram, saved: Mapping[str, torch.Tensor], device: str = ""
) -> Source:
    """Print a program as source.

    Args:
        saved: saved values by key; the script holds short ones in packed form.
        device: the target device, if it differs from the current one.

    Raises:
        CannotRebuild: no values are saved under a key.
    """
    return _print(listing, lambda spec: _written(spec, saved, device), device)


def statements_of(listing: PrintedProgram) -> Source:
    """Print only the statements, and the declarations of dims."""
    return _print(listing, lambda recipe: IN_FILE)


def _print(
    listing: PrintedProgram, write: Callable[[TensorSpec], Expression], device: str = ""
) -> Source:
    def lines(block: Block) -> list[str]:
        lines = [statement.line() for statement in block.statements]
        text = f'torch.device("{device}")'
        return [_DEVICE.sub(text, line) if device else line for line in lines]

    def given(entry: InputOrWeight) -> Input:
        texts = {run: write(recipe) for run, recipe in entry.recipes}
        failing, passing = texts.get(Run.FAILING), texts.get(Run.PASSING)
        return Input(entry.name, texts[Run.EXAMPLE], failing, passing)

    main = listing.main
    inputs = [listing.find(name) for name in main.arguments]
    return Source(
        weights=tuple(
            Weight(each.name, each.kind, write(each.recipe()))
            for each in listing.weights
        ),
        inputs=tuple(map(given, inputs)),
        branches=tuple(
            write_class(each.name, each.arguments, dict(each.members), lines(each))
            for each in listing.blocks[:-1]
        ),
        members=dict(main.members),
        body=tuple(lines(main)),
        dims=tuple(dim.line() for dim in listing.dims),
        dynamic_shapes=_dynamic_shapes(inputs),
    )


def collect_file_values(
    listing: PrintedProgram, saved: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return the values that the script reads from its data file, by name."""
    found = {}
    for entry in listing.given:
        for run, recipe in entry.recipes:
            if _written(recipe, saved, "") == IN_FILE:
                prefix = run if entry.is_input else "weight"
                found[f"{prefix}_{entry.name}"] = make_from_spec(recipe, saved)
    return found


def _written(
    recipe: TensorSpec, saved: Mapping[str, torch.Tensor], device: str
) -> Expression:
    if not isinstance(recipe.fill, Saved):
        text = write_tensor_spec(recipe, device)
    else:
        value = make_from_spec(recipe, saved)
        text = write_tensor(value, device or recipe.device).exact
    return Expression(text, text)


def _dynamic_shapes(inputs: Sequence[InputOrWeight]) -> str:
    specs = [_spec(entry) for entry in inputs]
    if all(spec == "None" for spec in specs):
        return "None"
    return f"({', '.join(specs)}{',' if len(specs) == 1 else ''})"


def _spec(entry: InputOrWeight) -> str:
    dims = [f"{dim}: {expr}" for dim, expr in entry.open_dims]
    return "{" + ", ".join(dims) + "}" if dims else "None"
