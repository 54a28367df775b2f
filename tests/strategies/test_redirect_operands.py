"""Redirects of operands: what is proposed, and what fits."""

from __future__ import annotations

from support.fake_fitter import FakeFitter
from support.listings import codes, floats, given, listed, listing

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.changes import changed
from shrinkfx.program.listing.listing import Given, Listing
from shrinkfx.search.strategy import proposals
from shrinkfx.strategies.redirect_operands import RedirectOperands


def made_of(start: Listing) -> list[list[str]]:
    """List the programs that come of each edit that fits and makes it cheaper."""
    candidate: Candidate = listed(start)
    fitter = FakeFitter()
    edits = proposals(RedirectOperands(), candidate, types=fitter.types(candidate))
    fits = fitter.fit(candidate, [e for e in edits])  # type: ignore[misc]
    assert candidate.listing is not None
    programs = [changed(candidate.listing, fit.changes) for fit in fits if fit]
    return [codes(p) for p in programs if p.cost < candidate.cost]


def program(text: str, *held: Given) -> Listing:
    x, y = given("x", floats(2, 3)), given("y", floats(2, 3))
    return listing(text, *(held or (x, y)))


def test_two_equal_operators_become_one() -> None:
    text = """
        view = aten.view.default(x, [3, 2])
        a = aten.transpose.int(view, 0, 1)
        b = aten.transpose.int(view, 0, 1)
        add = aten.add.Tensor(a, b)
        return (add,)
    """
    one = [
        "view = aten.view.default(x, [3, 2])",
        "a = aten.transpose.int(view, 0, 1)",
        "add = aten.add.Tensor(a, a)",
        "return (add,)",
    ]
    assert one in made_of(program(text))


def test_the_nearest_value_of_the_type_is_read_instead() -> None:
    text = """
        a = aten.relu.default(x)
        view = aten.view.default(a, [3, 2])
        b = aten.transpose.int(view, 0, 1)
        c = aten.add.Tensor(b, y)
        return (c,)
    """
    bypassed = ["a = aten.relu.default(x)", "c = aten.add.Tensor(a, y)", "return (c,)"]
    made = made_of(program(text))
    assert bypassed in made
    assert all(
        "view = aten.view.default(x, [3, 2])" not in m or "a = " not in m[0]
        for m in made
    )


def test_an_input_takes_the_place_of_another_and_of_a_weight() -> None:
    text = """
        a = aten.add.Tensor(x, y)
        b = aten.mul.Tensor(a, self.w)
        return (b,)
    """
    held = given("w", floats(2, 3), "parameter"), *program(text).given
    made = made_of(program(text, *held))
    assert [
        "a = aten.add.Tensor(x, x)",
        "b = aten.mul.Tensor(a, self.w)",
        "return (b,)",
    ] in made
    assert [
        "a = aten.add.Tensor(x, y)",
        "b = aten.mul.Tensor(a, x)",
        "return (b,)",
    ] in made


def test_an_operand_goes_from_a_list_and_a_value_that_is_returned_twice() -> None:
    text = """
        a = aten.relu.default(x)
        b = aten.exp.default(y)
        c = aten.cat.default([a, b], 1)
        return (c, c)
    """
    made = made_of(program(text))
    assert any("c = aten.cat.default([a], 1)" in lines for lines in made)
    assert any(lines[-1] == "return (c,)" for lines in made)


def test_all_results_of_one_operator_are_redirected_at_once() -> None:
    text = """
        add_ = aten.add_.Tensor(x, x)
        pair = aten.relu.default(x)
        one = pair[0]
        two = pair[1]
        c = aten.add.Tensor(one, two)
        return (c,)
    """
    start = listed(program(text))
    assert start.listing is not None
    kind = FakeFitter().types(listed(program("a = aten.relu.default(x)\nreturn (a,)")))
    own = kind["Repro", "a"]
    types = {("Repro", name): own for name in ("x", "one", "two", "c")}
    edits = proposals(RedirectOperands(), start, types=types)
    made = [
        changed(start.listing, e.changes)
        for e in edits
        if hasattr(e, "changes") and not e.partly
    ]
    short = [
        "add_ = aten.add_.Tensor(x, x)",
        "c = aten.add.Tensor(x, x)",
        "return (c,)",
    ]
    assert short in [codes(each) for each in made]


def test_what_acts_is_not_cut() -> None:
    text = "a = aten.add_.Tensor(x, y)\nb = aten.relu.default(a)\nreturn (b,)"
    assert all(
        "a = aten.add_.Tensor(x, y)" in made or "add_" in made[0]
        for made in made_of(program(text))
    )
