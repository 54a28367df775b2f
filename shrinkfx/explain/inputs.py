"""Whether a program was compiled for the inputs on which it fails.

AOTInductor takes the sizes and strides of its inputs for granted, and checks them only
where ``AOTI_RUNTIME_CHECK_INPUTS`` is set.
"""

from __future__ import annotations

from dataclasses import replace

from shrinkfx.explain.minimum import Minimum
from shrinkfx.failure.classify import observe
from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.program.listing.listing import Given, Listing, Run
from shrinkfx.program.listing.recipes import Recipe
from shrinkfx.program.listing.strides import row_major


def unfit_inputs(minimum: Minimum) -> str:
    """Say in a sentence that the failure comes of inputs it was not compiled for.

    Runs it once with its inputs checked, and if it refuses them once more, with inputs
    of the sizes and strides that it was exported with.

    Returns:
        '' where it takes them, or fails with the others as well.
    """
    listing, target = minimum.candidate.listing, minimum.target
    if listing is None or target.stage not in (Stage.RUN, Stage.COMPARE):
        return ""
    unlike = [each for each in listing.given if _as_exported(each) != each]
    if not unlike or target.kind is Kind.CHECK_INPUTS:
        return ""
    checked = minimum.ask(sanity=True)
    seen = observe(checked).signature if checked is not None else None
    if seen is None or seen.kind is not Kind.CHECK_INPUTS:
        return ""
    fitting = minimum.candidate.listed(_with_fitting(listing))
    ending = replace(minimum, candidate=fitting).ask()
    if ending is None or not observe(ending).passed:
        return ""
    return (
        f"The program was not compiled for its inputs: {_difference(unlike[0])}. "
        f"AOTI_RUNTIME_CHECK_INPUTS=1 refuses them ({seen.text}); with inputs of the "
        "exported sizes and strides it passes."
    )


def _with_fitting(listing: Listing) -> Listing:
    return replace(listing, given=tuple(map(_as_exported, listing.given)))


def _as_exported(given: Given) -> Given:
    """Give an input the layout that it was exported with; its size only if need be."""
    example, failing = given.recipe(), given.recipe(Run.FAILING)
    if failing.shape != example.shape:
        return given.with_recipe(Run.FAILING, example)
    if failing.stride == example.stride:
        return given
    alike = replace(failing, stride=example.stride).filled(failing.fill)
    return given.with_recipe(Run.FAILING, alike)


def _difference(given: Given) -> str:
    """Say how an input differs from that which the program was exported with."""
    example, failing = given.recipe(), given.recipe(Run.FAILING)
    if failing.shape != example.shape:
        what, here, there = "shape", failing.shape, example.shape
    else:
        what, here, there = "strides", _strides(failing), _strides(example)
    return f"{given.name} has {what} {list(here)}, and was exported with {list(there)}"


def _strides(recipe: Recipe) -> tuple[int, ...]:
    return recipe.stride or tuple(row_major(recipe.shape))
