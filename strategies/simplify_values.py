"""Fill inputs with simple values.

    x = data["x"]                        becomes    x = torch.ones((4, 8))
    x = torch.randn((4,))                becomes    x = torch.arange(4, ...)
    x = torch.tensor([2., 7., nan, 3.])  becomes    x = torch.tensor([nan, 0., 0., 0.])

Few failures depend on values, and those that do depend on few elements. A tensor that a
formula can make needs no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.parts import yield_parts
from shrinkfx.program.listing.printed_program import InputOrWeight, Kind
from shrinkfx.program.listing.tensor_specs import (
    Initializer,
    TensorSpec,
    list_simpler_formulas,
    yield_simpler_elements,
)
from shrinkfx.program.view import View


class SimplifyValues:
    """Propose a simple initializer for all inputs, for parts, for each; then elements.

    The first proposals set all runs of a program alike, the last ones a single run.
    """

    name = "simplify_values"
    kind = Kind.VALUES
    combines = False
    """A tensor has one initializer, and the elements that can still change depend on
    it."""

    def propose(self, view: View) -> Iterator[Rewrite]:
        fills = {
            tensor.name: list_simpler_formulas(_least_plain(tensor))
            for tensor in view.listing.inputs
        }
        fills = {name: simpler for name, simpler in fills.items() if simpler}
        names = [*fills]
        for part in yield_parts(names):
            yield _filled(part, fills, 0)
        for nth in range(1, max(map(len, fills.values()), default=0)):
            yield _filled(names, fills, nth)
        for name in names:
            for nth in range(1, len(fills[name])):
                yield _filled([name], fills, nth)
        for tensor in view.listing.inputs:
            for run, recipe in tensor.recipes:
                for fill in [
                    *list_simpler_formulas(recipe)[:1],
                    *yield_simpler_elements(recipe),
                ]:
                    yield Rewrite((Refill(tensor.name, fill, run),))


def _least_plain(tensor: InputOrWeight) -> TensorSpec:
    return max((recipe for _, recipe in tensor.recipes), key=lambda r: r.complexity)


def _filled(
    names: Sequence[str], fills: Mapping[str, Sequence[Initializer]], nth: int
) -> Rewrite:
    """Give each input its nth initializer, or its last one if it has fewer."""
    chosen = ((name, fills[name][: nth + 1][-1]) for name in names)
    return Rewrite(tuple(Refill(name, fill) for name, fill in chosen))
