"""Small random programs, reduced with everything real but the compiler.

25 of them in an ordinary run; ``pytest -m slow``, a part of ``make test-all``, goes
through 500. With ``--hypothesis-show-statistics`` it says why
candidates were no programs.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st
from support.random_programs import make
from support.reductions import Loaded, RealOracle, check_result, check_size, reduce
from torch._dynamo.exc import TorchDynamoException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
"""What torch says of the programs drawn (a variance of one number): it is no matter
here, and said once in a process, which would make a failure come and go."""

KEPT = {
    2: "its source was exported with ranges that its own guards refuse",
    5: "a size computed from a symbol that no input has kept its writes in",
    33: "the two sets of inputs differ in a number",
    34: "without writes it had fewer dynamic dims",
    41: "an operator without a result returned nothing",
    61: "a size that is a maximum could not be computed",
}
"""Seeds of programs that once failed, and what was wrong."""


def check(random: Random) -> RealOracle:
    """Draw a program, reduce it, and judge each step and the result."""
    made = make(random)
    try:
        exported = made.export()
    except (GuardOnDataDependentSymNode, TorchDynamoException):
        reject()  # a size that only data tells, branches with other strides
    in_place = random.random() < 0.25
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        loaded = Loaded.from_files(folder, made, exported, in_place=in_place)
        oracle, reducer, needed = reduce(loaded, made, random)
        assert reducer.minimal
        check_size(loaded, oracle, reducer.best, needed)
        check_result(loaded, reducer, folder)
    return oracle


@pytest.mark.parametrize("seed", KEPT, ids=KEPT.get)
def test_known_regression_program_is_reduced(seed: int) -> None:
    check(Random(seed))


@settings(max_examples=25)
@given(st.randoms(use_true_random=False))
def test_random_programs_are_reduced(random: Random) -> None:
    check(random)


@pytest.mark.slow
@settings(max_examples=500)
@given(st.randoms(use_true_random=False))
def test_many_random_programs_are_reduced(random: Random) -> None:
    for reason in check(random).refused.values():
        event(re.sub(r"\b\w*\d\w*\b", "#", reason)[:60])
