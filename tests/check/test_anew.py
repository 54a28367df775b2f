"""What passes is compiled in processes with other hash seeds, and that is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.doubles import FakeServer

from shrinkfx.check.baseline.recompile import seeds_to_try
from shrinkfx.check.baseline.stock import Baseline, find_baseline
from shrinkfx.check.oracle import ENOUGH, CheckClient, Limits
from shrinkfx.errors import NotReproducible
from shrinkfx.failure.signature import Kind
from shrinkfx.protocol.answers import Checked, Difference, Ending, Raised
from shrinkfx.protocol.choices import Weights
from shrinkfx.protocol.requests import HASH_SEED, Request

PASSES = Ending("exit", stage="done", answer=Checked())
PASSES_OFTEN = replace(PASSES, runs=ENOUGH)
DIFFERS = Ending("exit", stage="done", answer=Checked(Difference("values", "wrong")))
RAISES = Ending("exit", stage="compile", answer=Raised("ValueError", "no"))

SEEDS = ("1", "2", "3")


class Compiled(FakeServer):
    """Fails where a process with the second hash seed has compiled it.

    Args:
        fails: in the runs of that package, one after the other; then the last for ever.
        here: what it does compiled once more with the server's seed.
    """

    def __init__(self, *fails: Ending, here: Ending = PASSES_OFTEN) -> None:
        super().__init__(*fails)
        self._here = here

    def _reply(self, request: Request) -> Ending:
        package = request.options.package or ""
        if package.endswith(".again2"):
            return super()._reply(request)
        return self._here if package.endswith(".here") else PASSES

    @property
    def seeds(self) -> list[str]:
        """List the hash seeds of fresh interpreters."""
        set_by = [r.options.environment for r in self.asked if r.fresh]
        return [each.get(HASH_SEED, "") for each in set_by]


def run(
    server: FakeServer,
    seeds: tuple[str, ...] = SEEDS,
    max_runs: int = 100,
    weights: Weights = Weights.INSIDE,
) -> Baseline:
    client = CheckClient(server, Limits(10.0, 1 << 30)).with_options(weights=weights)
    asked = client, None, "", max_runs, lambda _: None
    return find_baseline(*asked, seeds=seeds)


@pytest.mark.parametrize("weights", [Weights.INSIDE, Weights.BESIDE])
def test_error_names_the_hash_seed_that_reproduces_the_failure(
    weights: Weights,
) -> None:
    server = Compiled(DIFFERS)
    with pytest.raises(NotReproducible) as raised:
        run(server, weights=weights)
    assert server.seeds == ["1", "2"]
    assert [said.partition(":")[0] for said in raised.value.seen] == [
        "passes",
        "mismatch in compare",
    ]
    assert "--env PYTHONHASHSEED=2" in str(raised.value.advice)
    of_it = [r for r in server.asked if (r.options.package or "").endswith("again2")]
    assert len(of_it) == ENOUGH
    assert not any(HASH_SEED in r.options.environment for r in of_it[1:])


def test_compile_error_with_one_hash_seed_is_reported_without_a_run() -> None:
    server = Compiled(RAISES)
    with pytest.raises(NotReproducible, match="--env PYTHONHASHSEED=2"):
        run(server)
    assert server.seeds == ["1", "2"]
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    "server",
    [
        Compiled(DIFFERS, DIFFERS, PASSES, DIFFERS),
        Compiled(DIFFERS, here=DIFFERS),
        Compiled(DIFFERS, here=replace(PASSES, how="late")),
    ],
)
def test_failure_not_tied_to_a_hash_seed_is_flaky(server: Compiled) -> None:
    base = run(server)
    assert base.target.kind is Kind.MISMATCH
    assert base.rate < 1.0


def test_error_counts_compilations_if_every_hash_seed_passes() -> None:
    server = FakeServer(PASSES)
    with pytest.raises(NotReproducible) as raised:
        run(server, max_runs=12)
    assert "the program was compiled 4 times here" in str(raised.value)
    assert "--env PYTHONHASHSEED=N" in str(raised.value)
    assert len({r.options.package for r in server.asked}) == 4
    assert raised.value.runs == 12


def test_compilations_are_bounded_by_max_runs() -> None:
    server = FakeServer(PASSES)
    with pytest.raises(NotReproducible, match="the program was compiled 2 times here"):
        run(server, max_runs=2)
    assert len(server.asked) == 2


def test_hash_seed_is_not_set_without_seeds_to_try() -> None:
    server = FakeServer(PASSES)
    with pytest.raises(NotReproducible, match="the program was compiled 2 times here"):
        run(server, seeds=())
    assert not any(HASH_SEED in r.options.environment for r in server.asked)


def test_seeds_to_try_skip_the_seed_of_the_shell_and_end_at_a_user_seed() -> None:
    assert seeds_to_try({HASH_SEED: "4"}, has_failed=True, environment={}) == ()
    assert seeds_to_try({}, has_failed=False, environment={}) == ("1",)
    shell = {HASH_SEED: "2"}
    assert seeds_to_try({}, has_failed=True, environment=shell) == ("1", "3", "4")
