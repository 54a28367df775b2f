"""A program as a listing is the same program, and so is what the listing says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_rebuild import as_exported, loaded
from zoo import ZOO

from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.listing.listing import Listing
from shrinkfx.worker.eager.intermediates import SEED, run_eager
from shrinkfx.worker.graph.rebuild import Rebuilt, rebuild
from shrinkfx.worker.listing.build import build
from shrinkfx.worker.listing.describe import Described, describe
from shrinkfx.worker.listing.recipes import saved_weights
from shrinkfx.worker.printing.module import same


def again(found: Described, built: Rebuilt) -> Rebuilt:
    """Make a program of what a listing says as JSON."""
    said = Listing.from_json(json.loads(json.dumps(found.listing.to_json())))
    assert said == found.listing
    return build(said, {**saved_weights(built.exported), **found.saved})


def require_same(made: Rebuilt, built: Rebuilt) -> None:
    """Hold inputs and results of two programs against each other, bit for bit."""
    for one, other in ((made.example, built.example), (made.failing, built.failing)):
        assert all(map(same, one.args, other.args))
        assert len(one.args) == len(other.args)
        pairs = (run_eager(each.exported, one, seed=SEED) for each in (made, built))
        assert all(map(same, *pairs))


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("form", [loaded, as_exported])
def test_a_listing_is_the_program_that_was_listed(name: str, form: Any) -> None:
    program, skeleton, values = form(name)
    for outputs in Outputs:
        candidate = Candidate.whole(skeleton, outputs)
        built = rebuild(program, candidate, values)
        found = describe(built)
        made = again(found, built)
        require_same(made, built)
        names = {line.name for _, line in found.listing.operators()}
        assert set(candidate.operators) <= names | {"x"}
        of_main = {
            line.name for line in found.listing.main.statements if line.is_operator
        }
        assert {n.name for n in made.exported.graph.nodes} >= of_main
