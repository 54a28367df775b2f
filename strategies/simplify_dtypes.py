"""Compute in the usual dtypes.

    x = torch.ones((4,), dtype=torch.bfloat16)     becomes     x = torch.ones((4,))
    i = torch.zeros((4,), dtype=torch.int8)        becomes     int64

All tensors of one dtype are cast at once, in statements too, because few operators mix
dtypes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Cast, Write
from shrinkfx.program.listing.printed_program import InputOrWeight, Kind, PrintedProgram
from shrinkfx.program.listing.tensor_specs import Constant, Counted, Seeded
from shrinkfx.program.view import View


class SimplifyDtypes:
    """Propose to cast all tensors of one dtype, then each tensor alone."""

    name = "simplify_dtypes"
    kind = Kind.DTYPES
    combines = True

    def propose(self, view: View) -> Iterator[Rewrite]:
        by_dtype: dict[str, list[str]] = defaultdict(list)
        for each in view.listing.given:
            dtype = each.recipe().dtype
            if _plain(dtype) != dtype and _is_formula(each):
                by_dtype[dtype].append(each.name)
        for dtype, names in by_dtype.items():
            casts = [Cast(name, _plain(dtype)) for name in names]
            yield Rewrite((*casts, *_words(view.listing, dtype)))
        for dtype, names in by_dtype.items():
            for name in names:
                yield Rewrite((Cast(name, _plain(dtype)),))


def _plain(dtype: str) -> str:
    """Return the usual dtype of a dtype's kind of number."""
    if dtype.startswith(("float", "bfloat", "complex")):
        return "float32"
    return "int64" if "int" in dtype else dtype


def _is_formula(tensor: InputOrWeight) -> bool:
    """Tell whether the dtype sets the elements: not if they are written out."""
    return all(
        isinstance(recipe.fill, (Counted, Seeded))
        or (
            isinstance(recipe.fill, Constant)
            and not isinstance(recipe.fill.value, complex)
        )
        for _, recipe in tensor.recipes
    )


def _words(listing: PrintedProgram, dtype: str) -> Iterator[Write]:
    """Yield changes that write the usual dtype wherever a statement names this one."""
    for block in listing.blocks:
        for line in block.statements:
            for leaf in line.leaves:
                if leaf.text == f"torch.{dtype}":
                    usual = f"torch.{_plain(dtype)}"
                    yield Write(block.name, line.name, leaf.number, usual)
