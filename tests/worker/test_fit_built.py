"""What fits is built and run: as programs that torch.export takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from listings import listing, recipe
from test_rebuild import loaded
from zoo import ZOO

from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import (
    Change,
    Fix,
    Refill,
    Resize,
    Write,
    apply_changes,
)
from shrinkfx.program.listing.printed_program import LeafKind, PrintedProgram
from shrinkfx.program.listing.tensor_specs import Opaque, Saved, Seeded
from shrinkfx.protocol.answers import Fitted
from shrinkfx.protocol.requests import CheckOptions, FitRewrites, Request, Setup
from shrinkfx.worker.eager.intermediates import SEED, run_eager
from shrinkfx.worker.graph.rebuild import rebuild
from shrinkfx.worker.listing.build import build
from shrinkfx.worker.listing.describe import describe, saved_weights
from shrinkfx.worker.listing.fit import fit_rewrites
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.tasks import Worker


def smaller(program: PrintedProgram) -> Iterator[Change]:
    """Ask for every size to be less, every dim static, every number to be 1."""
    for given in program.given:
        recipe = given.recipe()
        shape = () if isinstance(recipe.fill, Opaque) else recipe.shape
        for dim, size in enumerate(shape):
            yield from (Resize(given.name, dim, n) for n in (1, 2) if n < size)
        yield from (Fix(given.name, dim) for dim, _ in given.open_dims)
    for block in program.blocks:
        for line in block.statements:
            for leaf in line.leaves:
                if line.yields and leaf.kind is LeafKind.NUMBER and leaf.text != "1":
                    yield Write(block.name, line.name, leaf.number, "1")


@pytest.mark.parametrize("name", sorted(ZOO))
def test_fitted_rewrites_build_and_run(name: str) -> None:
    program, skeleton, values = loaded(name)
    built = rebuild(
        program, Candidate.from_skeleton(skeleton, Outputs.ORIGINAL), values
    )
    found = describe(built)
    saved = {**saved_weights(built.exported), **found.saved}
    asked = [Rewrite((change,)) for change in smaller(found.listing)]
    answer = fit_rewrites(found.listing, asked, saved)
    assert {typed.name for typed in answer.values} >= set(found.listing.main.arguments)
    fits = [fit for fit in answer.fits if fit is not None]
    assert len(fits) >= 3
    for fit in fits[:: max(1, len(fits) // 3)]:
        made = build(apply_changes(found.listing, fit.changes), saved)
        for inputs in (made.example, made.failing):
            run_eager(made.exported, inputs, seed=SEED)


def test_worker_fits_rewrites_with_saved_values(tmp_path: Path) -> None:
    x = torch.randn(4)
    table = torch.export.export(Table(), (x,))
    torch.export.save(table, tmp_path / "model.pt2")
    torch.save({"args": (x,), "kwargs": {}}, tmp_path / "inputs.pt")
    model, inputs = str(tmp_path / "model.pt2"), str(tmp_path / "inputs.pt")
    setup = Setup(str(tmp_path), model, inputs)
    worker = Worker(setup, 1, load(setup))
    ids = recipe(3, dtype="int64", fill=Saved("ids"))
    program = listing(
        {"i": ids},
        "y = torch.ops.aten.embedding.default(self.w, i)",
        "return (y,)",
        weights={"w": recipe(9, 2)},
    )
    torch.save({"ids": torch.tensor([0, 5, 2])}, tmp_path / "data.pt")
    asked = tuple(Rewrite((Resize("w", 0, size),)) for size in (6, 5))
    task = FitRewrites({"listing": program.to_json()}, asked)
    request = Request(task, CheckOptions(data=str(tmp_path / "data.pt")))
    said = worker.perform(request, lambda stage: None, tmp_path)
    assert isinstance(said, Fitted)
    refill = Refill("i", Seeded("randint", 0, 5))
    assert said.fits == (asked[0], Rewrite((refill, Resize("w", 0, 5))))
    assert Fitted.from_line(said.to_line()) == said


class Table(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu()
