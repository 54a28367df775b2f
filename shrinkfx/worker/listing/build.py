"""Construction of an exported program from a printed one, as in a repro."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from shrinkfx.program.listing.printed_program import InputOrWeight, PrintedProgram, Run
from shrinkfx.program.listing.statements import RETURN, Statement
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.graph.symbols import CannotRebuild
from shrinkfx.worker.listing.names import restore_statement_names
from shrinkfx.worker.listing.source import statements_of
from shrinkfx.worker.listing.tensor_specs import make_from_spec
from shrinkfx.worker.loading.source_archive import execute_source, set_weight
from shrinkfx.worker.model import Inputs
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
