"""Turn weights into inputs with simple values: gigabytes become a few lines.

    self.w = Parameter(data["w"])        becomes    w = torch.ones((4, 4))
    add(self.w, self.v)                  becomes    add(self.w, self.w)

An input takes one line less than a weight. A tensor that must be a weight may still be
a constant, or the same as another weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Change, Convert, Refill, Write
from shrinkfx.program.listing.parts import yield_parts
from shrinkfx.program.listing.printed_program import InputOrWeight, Kind, PrintedProgram
from shrinkfx.program.listing.tensor_specs import (
    Opaque,
    TensorSpec,
    list_simpler_formulas,
    yield_simpler_elements,
)
from shrinkfx.program.view import View


class SimplifyWeights:
    """Propose inputs with simple values for weights, then simple weights, then less."""

    name = "simplify_weights"
    kind = Kind.WEIGHTS
    combines = False
    """The initializers of a weight, and the weights that could replace it, are
    alternatives."""

    def propose(self, view: View) -> Iterator[Rewrite]:
        listing = view.listing
        tensors = {w.name: w.recipe() for w in listing.weights if _is_tensor(w)}
        fills = {
            name: list_simpler_formulas(recipe) for name, recipe in tensors.items()
        }
        first = {n: [Refill(n, fill) for fill in fills[n][:1]] for n in tensors}
        to_input = {name: [Convert(name, "input")] for name in tensors}
        rest = [name for name in tensors if fills[name]]
        for names, edits in (([*tensors], (to_input, first)), (rest, (first,))):
            if names:
                yield _joined(names, *edits)
        for part in yield_parts([*tensors]):
            yield _joined(part, to_input, first)
        for part in yield_parts(rest):
            yield _joined(part, first)
        for other, name in pairwise(tensors):
            if _are_alike(tensors[other], tensors[name]):
                yield Rewrite((*_shared(listing, name, other),))
        for name in rest:
            yield _joined([name], to_input)
            for fill in [*fills[name][1:], *yield_simpler_elements(tensors[name])]:
                yield Rewrite((Refill(name, fill),))


def _joined(names: Iterable[str], *changes: Mapping[str, Sequence[Change]]) -> Rewrite:
    """Join the changes of some weights into one rewrite."""
    return Rewrite(tuple(c for name in names for by in changes for c in by[name]))


def _is_tensor(weight: InputOrWeight) -> bool:
    return not isinstance(weight.recipe().fill, Opaque)


def _are_alike(one: TensorSpec, other: TensorSpec) -> bool:
    """Tell whether an operator that accepts one weight would accept the other."""
    return replace(one, fill=other.fill) == other


def _shared(listing: PrintedProgram, name: str, other: str) -> Iterator[Write]:
    """Yield changes that make each reader of a weight read another one."""
    for line in listing.main.statements:
        for leaf in line.leaves:
            if leaf.text == listing.find(name).spelling:
                spelling = listing.find(other).spelling
                yield Write(listing.main.name, line.name, leaf.number, spelling)
