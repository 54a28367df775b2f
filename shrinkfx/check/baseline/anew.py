"""The unchanged program, compiled once more: what passes, with other hash seeds.

Python orders a set of strings by a seed that each process draws anew, unless
``PYTHONHASHSEED`` says which. A pass or a lowering that goes through one compiles
otherwise from process to process, and forks of a server have the seed of that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from shrinkfx.check.baseline.runs import Bounds, Runs, is_in_words
from shrinkfx.check.oracle import ENOUGH, CheckClient
from shrinkfx.errors import NotReproducible
from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.choices import Weights
from shrinkfx.protocol.requests import HASH_SEED
from shrinkfx.wording import Flag, Words

_USUAL, _SURE = 1, 3
"""Processes with seeds of their own. Two strings come in either order in one of two, so
a failure by that is missed in one of 4 cases, or of 16: the server's counts, too."""


def seeds_to_try(
    given: Mapping[str, str],
    *,
    has_failed: bool,
    environment: Mapping[str, str] = os.environ,
) -> tuple[str, ...]:
    """List the seeds with which a program that passes is compiled once more.

    Args:
        given: what the user has set for the run: a seed there is the one to use.
        has_failed: the program is known to have failed in its script.
    """
    if HASH_SEED in given:
        return ()
    count, used = _SURE if has_failed else _USUAL, environment.get(HASH_SEED)
    seeds = map(str, range(1, count + 2))
    return tuple([seed for seed in seeds if seed != used][:count])


def leaves_out_weights(kept: CheckClient) -> bool:
    return kept.options.weights is Weights.BESIDE


def compile_anew(kept: CheckClient, runs: Runs, bounds: Bounds) -> CheckClient:
    """Compile and run it once more, with its weights inside; choose what to go on with.

    What passes is compiled with one hash seed after the other, until it fails.

    Raises:
        NotReproducible: it fails with one of them alone.
    """
    if runs.target or not bounds.seeds:
        return _again(kept, runs, bounds)
    again = kept
    for seed in bounds.seeds:
        again = _again(kept, runs, bounds, seed)
        if runs.target:
            _require_here(kept, runs, bounds, seed)
            break
        if runs.made >= bounds.max_runs or not bounds.allow_compiling(runs):
            break
    return again


def _again(
    kept: CheckClient, runs: Runs, bounds: Bounds, seed: str = ""
) -> CheckClient:
    """Do so once; where weights were left out and that is no matter, it stays so.

    Args:
        seed: of the fresh interpreter; one of its own if empty.
    """
    name, before = f"{kept.options.package}.again{seed}", list(runs.seen)
    again = kept.with_options(package=name, weights=Weights.INSIDE)
    seen = bounds.compiled_anew(
        _seeded(again, seed), fresh=not is_in_words(runs.target)
    )
    if seen is None:
        return kept
    runs.seen.append(seen)
    if not leaves_out_weights(kept):
        return again
    if replace(runs, seen=before).target or not runs.target:
        return kept
    # What passes without them says nothing of how often it fails with them.
    runs.seen[:] = runs.seen[-1:]
    return again


def _seeded(client: CheckClient, seed: str) -> CheckClient:
    if not seed:
        return client
    environment = {**client.options.environment, HASH_SEED: seed}
    return client.with_options(environment=environment)


def _require_here(kept: CheckClient, runs: Runs, bounds: Bounds, seed: str) -> None:
    """Refuse a failure of what is compiled with one hash seed, and not of the server's.

    Each run of the one package must fail, and each of the other pass: what fails now
    and then is as likely to have been seen by chance.

    Raises:
        NotReproducible: so it is; with the seed to have in all processes.
    """
    target, inside = runs.target, kept.with_options(weights=Weights.INSIDE)
    assert target is not None
    here, there = (f"{kept.options.package}.{at}" for at in ("here", f"again{seed}"))
    if not bounds.allow_compiling(runs):
        return
    passed = bounds.compiled_anew(inside.with_options(package=here, runs=ENOUGH))
    if passed is None or not passed.passed:
        return
    if target.stage is not Stage.COMPILE:  # which leaves nothing to run
        for _ in range(ENOUGH - 1):
            seen = bounds.run(inside.with_options(package=there))
            if seen is None:
                return
            runs.seen.append(seen)
            if not target.admits(seen.signature):
                return
    said = dict.fromkeys(s.in_words for s in (passed, *runs.seen))
    made = runs.made + passed.runs
    raise NotReproducible(runs.wanted, made, list(said), _to_have(seed))


def _to_have(seed: str) -> Words:
    return Words.lines(
        [
            "the program fails if it is compiled in a process with "
            f"{HASH_SEED}={seed}, and passes if it is compiled in the process that "
            "runs the checks",
            "check whether a pass or a lowering iterates over a set of strings, "
            "because its order differs between processes",
            Words(
                "to use that seed in all processes: ", Flag("--env", (HASH_SEED, seed))
            ),
        ]
    )


def otherwise_compiled(times: int) -> Words:
    """Say how often what passes was compiled, and how to have it done otherwise."""
    often = "once" if times == 1 else f"{times} times"
    return Words(
        f"compilation may differ between processes; the program was compiled {often} "
        "here; to change the order of sets of strings: ",
        Flag("--env", (HASH_SEED, "N")),
        " with another N",
    )
