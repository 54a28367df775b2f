"""The facts that a repro is written from: the source code and other properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import torch

from shrinkfx.program.listing.printed_program import PrintedProgram
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
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.listing.source import collect_file_values, print_listing
from shrinkfx.worker.loading.devices import gpu_of
from shrinkfx.worker.printing.anonymize import anonymize
from shrinkfx.worker.printing.module import (
    arguments_of,
    long_values,
    print_if_possible,
)


@dataclass(frozen=True)
class SourceText:
    """The source code of a program.

    Attributes:
        source: the code, or None.
        unprintable: why there is no code, or ''.
        values: the tensors to save with ``torch.save`` in a file for the code.
        operators: how many operators the program has.
        two_sets: whether the program fails on other inputs than its example inputs.
        renamed: new names of inputs and weights by their old names.
    """

    source: Source | None
    unprintable: str
    values: Mapping[str, torch.Tensor]
    operators: int
    two_sets: bool
    renamed: Mapping[str, str] = field(default_factory=dict)

    def without_names(self) -> Self:
        """Replace the names of the user's model, if the program could be printed."""
        if self.source is None:
            return self
        source, new = anonymize(self.source)
        files = new.in_file
        values = {files.get(name, name): value for name, value in self.values.items()}
        names = {**new.inputs, **new.weights}
        return replace(self, source=source, values=values, renamed=names)


def print_graph(built: RebuiltCandidate, device: str, *, two_sets: bool) -> SourceText:
    """Print the graph of a program as source code."""
    source, unprintable = print_if_possible(built, device)
    operators = count_operators(built.exported.graph_module)
    return SourceText(source, unprintable, long_values(built), operators, two_sets)


def text_of_listing(
    built: RebuiltCandidate,
    listing: PrintedProgram,
    saved: Mapping[str, torch.Tensor],
    device: str,
) -> SourceText:
    """Return the source code of a printed program."""
    source = print_listing(listing, saved, device)
    # Without saved values, the file has the arguments, for the saved program only.
    values = collect_file_values(listing, saved) or arguments_of(built)
    operators = sum(1 for _ in listing.operators())
    two_sets = any(inputs.failing is not None for inputs in source.inputs)
    return SourceText(source, "", values, operators, two_sets)


def describe_printed(
    built: RebuiltCandidate, text: SourceText, options: CheckOptions
) -> Printed:
    """Return the answer with the source code and the properties of its program."""
    exported = built.exported
    calls = (n for n in exported.graph.nodes if n.op == "call_function")
    return Printed(
        source=text.source,
        unprintable=text.unprintable,
        two_sets=text.two_sets,
        passes=built.passing is not None,
        limits=tuple(Reference(built, options).needed_tolerances()),
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
