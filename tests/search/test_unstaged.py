"""A search that judges alone confirm: of listings, say."""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Write
from shrinkfx.program.listing.printed_program import Kind, LeafKind
from shrinkfx.program.view import View
from shrinkfx.search.asker import Asker, Confirmation
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.staged import UnstagedSearch
from shrinkfx.testing import FakeOracle, listed, listing

ADDED = """
add = torch.ops.aten.add.Tensor(x, 17, alpha=3)
mul = torch.ops.aten.mul.Tensor(add, 25)
return mul
"""


class Zeros:
    """Write each number as 0, one by one."""

    name = "zeros"
    combines = False
    kind = Kind.ARGUMENTS

    def propose(self, view: View) -> Iterator[Rewrite]:
        for block, line in view.listing.operators():
            for leaf in line.leaves:
                if leaf.kind is LeafKind.NUMBER and leaf.text != "0":
                    yield Rewrite((Write(block.name, line.name, leaf.number, "0"),))


def text_of(candidate: Candidate) -> str:
    assert candidate.listing is not None
    return "\n".join(line.line() for line in candidate.listing.main.statements)


def test_printed_program_search_goes_back_if_the_result_is_refused() -> None:
    cheap = FakeOracle(lambda candidate: "mul" in text_of(candidate))
    reducer = Reducer(listed(listing(ADDED)), Asker(cheap), [Zeros()])
    search = UnstagedSearch(reducer)
    search.run()
    assert not search.is_open
    assert "17" not in text_of(reducer.best)
    assert search.reducers == [search.reducer] == [reducer]
    steps = len(search.history)

    dear = FakeOracle(lambda candidate: "17" in text_of(candidate))
    judge = Confirmation("strict", Asker(dear), "it passes")
    assert search.confirm(judge)
    search.continue_search()
    assert "17" in text_of(reducer.best)
    assert steps > 1
    assert search.unconfirmed == set()
    assert all("17" in text_of(c) for c in reducer.history)


def test_printed_program_search_keeps_the_result_if_none_is_confirmed() -> None:
    asker = Asker(FakeOracle(lambda _: True))
    reducer = Reducer(listed(listing(ADDED)), asker, [Zeros()])
    search = UnstagedSearch(reducer)
    search.find()
    best = reducer.best
    refuses = FakeOracle(lambda _: False)
    assert not search.confirm(Confirmation("strict", Asker(refuses), "it passes"))
    assert reducer.best is best
    assert len(refuses.asked) <= len(search.history)
