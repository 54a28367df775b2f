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
from shrinkfx.program.listing.fills import fewer_elements, plainer_fills
from shrinkfx.program.listing.listing import Given
from shrinkfx.program.listing.recipes import Fill, Recipe
from shrinkfx.program.listing.types import Kind
from shrinkfx.program.view import View


class PlainValues:
    """Propose a plain fill for all inputs, for half of them, for each; then elements.

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
        yield from _together(names, fills)
        if len(names) > 3:
            for part in (names[: len(names) // 2], names[len(names) // 2 :]):
                yield _nth(part, fills, 0)
        for name in names:
            yield from _together([name], fills)
        for given in view.listing.inputs:
            for run, recipe in given.recipes:
                for fill in [*plainer_fills(recipe)[:1], *fewer_elements(recipe)]:
                    yield Rewrite((Refill(given.name, fill, run),))


def _least_plain(given: Given) -> Recipe:
    return max((recipe for _, recipe in given.recipes), key=lambda r: r.plainness)


def _together(
    names: Sequence[str], fills: Mapping[str, Sequence[Fill]]
) -> Iterator[Rewrite]:
    """Propose the first fill for all, then the second one."""
    for place in range(max((len(fills[name]) for name in names), default=0)):
        yield _nth(names, fills, place)


def _nth(names: Sequence[str], fills: Mapping[str, Sequence[Fill]], n: int) -> Rewrite:
    """Propose the fill number ``n``, or the last one where there are fewer."""
    chosen = ((name, fills[name][: n + 1][-1]) for name in names)
    return Rewrite(tuple(Refill(name, fill) for name, fill in chosen))
