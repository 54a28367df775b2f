"""Small random programs, reduced with everything real but the compiler.

25 of them in an ordinary run; ``pytest -m slow``, a part of ``make test-all``, goes
through 500.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from programs import make
from reductions import Loaded, check_result, reduce
from torch._dynamo.exc import TorchDynamoException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

FEW, MANY = 25, 500

KEPT: dict[int, str] = {}
"""Seeds of programs that once failed, and what was wrong."""


def check(random: Random, folder: Path) -> None:
    made = make(random)
    try:
        exported = made.export()
    except (GuardOnDataDependentSymNode, TorchDynamoException):
        reject()  # a size that only data tells, branches with other strides
    in_place = random.random() < 0.25
    loaded = Loaded.from_files(folder, made, exported, in_place=in_place)
    oracle, reducer, needed = reduce(loaded, made, random)
    assert reducer.minimal
    assert reducer.best.cost[0] == needed, (reducer.best, oracle.refused)
    check_result(loaded, reducer, folder)


@pytest.mark.parametrize("seed", KEPT, ids=str)
def test_program_that_once_failed_is_reduced(seed: int, tmp_path: Path) -> None:
    check(Random(seed), tmp_path)


def test_random_programs_are_reduced() -> None:
    go(FEW)


@pytest.mark.slow
def test_many_random_programs_are_reduced() -> None:
    go(MANY)


def go(programs: int) -> None:
    """Check so many programs that Hypothesis draws."""

    @settings(max_examples=programs)
    @given(st.randoms(use_true_random=False))
    def one(random: Random) -> None:
        with tempfile.TemporaryDirectory() as folder:
            check(random, Path(folder))

    one()
