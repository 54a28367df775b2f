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


def describe_rejected_input(minimum: ReducedProgram) -> str:
    """Describe an input that the program was not compiled for, if it is the cause.

    This runs the program once with input checks. If an input is rejected, a second run
    uses that input as it was exported: with its strides, or all of it if its shape
    differs.

    Returns:
        A sentence; '' if the program accepts its inputs, still fails with the exported
        input, or fails only in some runs.
    """
    listing, target = minimum.candidate.listing, minimum.target
    if listing is None or target.stage not in (Stage.RUN, Stage.COMPARE):
        return ""
    if minimum.rate < 1.0 or target.kind is Kind.CHECK_INPUTS:
        return ""
    if not any(_difference(each) for each in listing.inputs):
        return ""
    checked = minimum.ask(sanity=True)
    seen = classify_ending(checked).signature if checked is not None else None
    rejected = _rejected(listing, seen.text) if seen is not None else None
    if seen is None or seen.kind is not Kind.CHECK_INPUTS or rejected is None:
        return ""
    fitting = listing.with_given(_as_exported(rejected))
    ending = replace(minimum, candidate=minimum.candidate.with_listing(fitting)).ask()
    if ending is None or not classify_ending(ending).passed:
        return ""
    what = _difference(rejected)
    return (
        f"Input {rejected.name} has {what}. With AOTI_RUNTIME_CHECK_INPUTS=1, the "
        f"compiled program rejects the input ({seen.text}); with "
        f"{_exported(rejected)}, it passes."
    )


def _rejected(listing: PrintedProgram, text: str) -> InputOrWeight | None:
    """Return the input whose number the error names, if it differs from the example."""
    found = _REJECTED.search(text)
    number = int(found[1]) if found else len(listing.inputs)
    named = listing.inputs[number : number + 1]
    return next((each for each in named if _difference(each)), None)


def _as_exported(given: InputOrWeight) -> InputOrWeight:
    """Return an input with the exported strides, or all of the exported input."""
    example, failing = given.recipe(), given.recipe(Run.FAILING)
    if failing.shape == example.shape:
        example = replace(failing, stride=example.stride).filled(failing.fill)
    return given.with_recipe(Run.FAILING, example)


def _difference(given: InputOrWeight) -> str:
    """Describe how an input differs from the input of the export."""
    example, failing = given.recipe(), given.recipe(Run.FAILING)
    if failing.shape != example.shape:
        told = "shape", failing.shape, example.shape
    elif _strides(failing) != _strides(example):
        told = "strides", _strides(failing), _strides(example)
    else:
        return ""
    return f"{told[0]} {[*told[1]]}, but was exported with {[*told[2]]}"


def _exported(given: InputOrWeight) -> str:
    """Return which part of the exported input the passing run used."""
    is_resized = given.recipe(Run.FAILING).shape != given.recipe().shape
    return "the exported input" if is_resized else "the exported strides"


def _strides(recipe: TensorSpec) -> tuple[int, ...]:
    return recipe.stride or tuple(row_major(recipe.shape))
