"""Every built-in strategy keeps the laws, whatever the program."""

from __future__ import annotations

import pytest
from hypothesis import given

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.search.strategy import OLD_NAMES, Rewriter, Strategy, available, choose
from shrinkfx.testing import candidates, check_strategy, listed, listings, types_of

BUILT_IN = {
    name: make
    for name, make in available().items()
    if getattr(make, "__module__", "").startswith("shrinkfx.strategies.")
}


OF_LISTINGS = [name for name, make in BUILT_IN.items() if isinstance(make(), Rewriter)]
OF_OPERATORS = [name for name in BUILT_IN if name not in OF_LISTINGS]


@pytest.mark.parametrize("name", OF_OPERATORS)
@given(candidate=candidates())
def test_strategy_obeys_the_laws(name: str, candidate: Candidate) -> None:
    check_strategy(BUILT_IN[name](), candidate)


@pytest.mark.parametrize("name", OF_LISTINGS)
@given(program=listings())
def test_strategy_for_printed_programs_obeys_the_laws(
    name: str, program: PrintedProgram
) -> None:
    check_strategy(BUILT_IN[name](), listed(program), types_of(program))


@pytest.mark.parametrize("name", BUILT_IN)
def test_strategy_name_is_its_class_name_in_snake_case(name: str) -> None:
    strategy: Strategy = BUILT_IN[name]()
    words = "".join(part.capitalize() for part in name.split("_"))
    assert (strategy.name, type(strategy).__name__) == (name, words)


@pytest.mark.parametrize("old", OLD_NAMES)
def test_old_name_chooses_the_renamed_strategy(old: str) -> None:
    assert [strategy.name for strategy in choose([old])] == [OLD_NAMES[old]]
