"""Fill inputs with plain values.

    x = data["x"]                        becomes    x = torch.ones((4, 8))
    x = torch.randn((4,))                becomes    x = torch.arange(4, ...)
    x = torch.tensor([2., 7., nan, 3.])  becomes    x = torch.tensor([nan, 0., 0., 0.])

Few failures depend on values, and these on few elements. What is in a file goes as
soon as a formula does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.fills import plainer_elements, plainer_fills
from shrinkfx.program.listing.listing import Given
from shrinkfx.program.listing.parts import in_parts
from shrinkfx.program.listing.recipes import Fill, Recipe
from shrinkfx.program.listing.types import Kind
from shrinkfx.program.view import View


class PlainValues:
    """Propose a plain fill for all inputs, for some, for each; then elements.

    First the same in all runs of a program, then in one of them.
    """

    name = "plain_values"
    kind = Kind.VALUES
    combines = False
    """There is one fill for a tensor, and which elements are left depends on it."""

    def propose(self, view: View) -> Iterator[Rewrite]:
        fills = {
            given.name: plainer_fills(_least_plain(given))
            for given in view.listing.inputs
        }
        fills = {name: plainer for name, plainer in fills.items() if plainer}
        names = [*fills]
        for part in in_parts(names):
            yield _filled(part, fills, 0)
        for nth in range(1, max(map(len, fills.values()), default=0)):
            yield _filled(names, fills, nth)
        for name in names:
            for nth in range(1, len(fills[name])):
                yield _filled([name], fills, nth)
        for given in view.listing.inputs:
            for run, recipe in given.recipes:
                for fill in [*plainer_fills(recipe)[:1], *plainer_elements(recipe)]:
                    yield Rewrite((Refill(given.name, fill, run),))


def _least_plain(given: Given) -> Recipe:
    return max((recipe for _, recipe in given.recipes), key=lambda r: r.plainness)


def _filled(
    names: Sequence[str], fills: Mapping[str, Sequence[Fill]], nth: int
) -> Rewrite:
    """Propose the fill of that number for each, or the last one of fewer."""
    chosen = ((name, fills[name][: nth + 1][-1]) for name in names)
    return Rewrite(tuple(Refill(name, fill) for name, fill in chosen))
