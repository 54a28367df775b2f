"""Check whether a program was compiled for the inputs on which it fails.

AOTInductor assumes the sizes and strides of its inputs, and checks them only if
``AOTI_RUNTIME_CHECK_INPUTS`` is set.
"""

from __future__ import annotations

import re
from dataclasses import replace

from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.program.listing.printed_program import InputOrWeight, PrintedProgram, Run
from shrinkfx.program.listing.strides import row_major
from shrinkfx.program.listing.tensor_specs import TensorSpec

_REJECTED = re.compile(r"input_handles\[(\d+)\]")


def describe_rejected_input(reduced: ReducedProgram) -> str:
    """Describe an input that the program was not compiled for, if it is the cause.

    This runs the program once with input checks. If an input is rejected, a second run
    uses that input as it was exported: with its strides, or all of it if its shape
    differs.

    Returns:
        A sentence; '' if the program accepts its inputs, still fails with the exported
        input, or fails only in some runs.
    """
    listing, target = reduced.candidate.listing, reduced.target
    if listing is None or target.stage not in (Stage.RUN, Stage.COMPARE):
        return ""
    if reduced.rate < 1.0 or target.kind is Kind.CHECK_INPUTS:
        return ""
    if not any(_difference(each) for each in listing.inputs):
        return ""
    checked = reduced.ask(sanity=True)
    found = classify_ending(checked).signature if checked is not None else None
    rejected = _rejected(listing, found.text) if found is not None else None
    if found is None or found.kind is not Kind.CHECK_INPUTS or rejected is None:
        return ""
    accepted = listing.with_given(_as_exported(rejected))
    ending = replace(reduced, candidate=reduced.candidate.with_listing(accepted)).ask()
    if ending is None or not classify_ending(ending).passed:
        return ""
    what = _difference(rejected)
    return (
        f"Input {rejected.name} has {what}. With AOTI_RUNTIME_CHECK_INPUTS=1, the "
        f"compiled program rejects the input ({found.text}); with "
        f"{_exported(rejected)}, it passes."
    )


def _rejected(listing: PrintedProgram, text: str) -> InputOrWeight | None:
    """Return the input whose number the error names, if it differs from the example."""
    found = _REJECTED.search(text)
    number = int(found[1]) if found else len(listing.inputs)
    named = listing.inputs[number : number + 1]
    return next((each for each in named if _difference(each)), None)


def _as_exported(entry: InputOrWeight) -> InputOrWeight:
    """Return an input with the exported strides, or all of the exported input."""
    example, failing = entry.recipe(), entry.recipe(Run.FAILING)
    if failing.shape == example.shape:
        example = replace(failing, stride=example.stride).filled(failing.fill)
    return entry.with_recipe(Run.FAILING, example)


def _difference(entry: InputOrWeight) -> str:
    """Describe how an input differs from the input of the export."""
    example, failing = entry.recipe(), entry.recipe(Run.FAILING)
    if failing.shape != example.shape:
        change = "shape", failing.shape, example.shape
    elif _strides(failing) != _strides(example):
        change = "strides", _strides(failing), _strides(example)
    else:
        return ""
    return f"{change[0]} {[*change[1]]}, but was exported with {[*change[2]]}"


def _exported(entry: InputOrWeight) -> str:
    """Return which part of the exported input the passing run used."""
    is_resized = entry.recipe(Run.FAILING).shape != entry.recipe().shape
    return "the exported input" if is_resized else "the exported strides"


def _strides(recipe: TensorSpec) -> tuple[int, ...]:
    return recipe.stride or tuple(row_major(recipe.shape))
