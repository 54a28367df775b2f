"""What a program's repro is written from: its text, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import torch

from shrinkfx.program.listing.listing import Listing
from shrinkfx.protocol.descriptions import Printed
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.protocol.source import Source
from shrinkfx.worker.checking.reference import Reference
from shrinkfx.worker.graph.describe import (
    count_inputs,
    count_operators,
    draws_random_numbers,
    dynamic_dims,
    mutates,
)
from shrinkfx.worker.graph.rebuild import Rebuilt
from shrinkfx.worker.listing.source import source_of, values_in_file
from shrinkfx.worker.loading.devices import gpu_of
from shrinkfx.worker.printing.anonymous import anonymous
from shrinkfx.worker.printing.module import (
    arguments_of,
    long_values,
    print_if_possible,
)


@dataclass(frozen=True)
class Text:
    """A program as source.

    Attributes:
        unprintable: why there is none, or ''.
        values: what ``torch.save`` puts into a file beside it.
        two_sets: it fails on other inputs than it is exported with.
        renamed: new names of inputs and weights by old ones, where they were changed.
    """

    source: Source | None
    unprintable: str
    values: Mapping[str, torch.Tensor]
    operators: int
    two_sets: bool
    renamed: Mapping[str, str] = field(default_factory=dict)

    def without_names(self) -> Self:
        """Leave out the names of its user's model, if it could be printed."""
        if self.source is None:
            return self
        source, new = anonymous(self.source)
        files = new.in_file
        values = {files.get(name, name): value for name, value in self.values.items()}
        names = {**new.inputs, **new.weights}
        return replace(self, source=source, values=values, renamed=names)


def text_of_graph(built: Rebuilt, device: str, *, two_sets: bool) -> Text:
    """Print the graph of a program."""
    source, unprintable = print_if_possible(built, device)
    operators = count_operators(built.exported.graph_module)
    return Text(source, unprintable, long_values(built), operators, two_sets)


def text_of_listing(
    built: Rebuilt, listing: Listing, saved: Mapping[str, torch.Tensor], device: str
) -> Text:
    """Print a listing, line by line."""
    source = source_of(listing, saved, device)
    # With no values there it is of use to the program itself alone.
    values = values_in_file(listing, saved) or arguments_of(built)
    operators = sum(1 for _ in listing.operators())
    two_sets = any(given.failing is not None for given in source.inputs)
    return Text(source, "", values, operators, two_sets)


def printed(built: Rebuilt, text: Text, options: CheckOptions) -> Printed:
    """Add to a text what is known of its program."""
    exported = built.exported
    calls = (n for n in exported.graph.nodes if n.op == "call_function")
    return Printed(
        source=text.source,
        unprintable=text.unprintable,
        two_sets=text.two_sets,
        passes=built.passing is not None,
        limits=tuple(Reference(built, options).limits()),
        operators=text.operators,
        nodes=len(exported.graph.nodes),
        inputs=count_inputs(exported),
        dynamic_dims=dynamic_dims(exported),
        random=draws_random_numbers(exported),
        mutates=mutates(exported),
        targets=tuple(sorted({str(n.target) for n in calls})),
        renamed=text.renamed,
        gpu=gpu_of(exported),
    )
