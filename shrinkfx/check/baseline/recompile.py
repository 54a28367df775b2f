"""Recompile the input program; if it passes, with other hash seeds.

Python orders a set of strings by a hash seed, which each process draws unless
``PYTHONHASHSEED`` sets it. A pass or a lowering that iterates over such a set may
compile differently in each process, but all forks of a server share its seed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from shrinkfx.check.baseline.runs import Bounds, Runs, is_self_explanatory
from shrinkfx.check.oracle import ENOUGH, CheckClient
from shrinkfx.errors import Flag, MessageText, NotReproducible
from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.choices import Weights
from shrinkfx.protocol.requests import HASH_SEED

_USUAL, _SURE = 1, 3
"""The number of processes with seeds of their own: usually, and if a failure is known.

Two strings come in either order with equal probability. So a failure that depends on
their order is missed in one of 4 cases, or of 16, the server's seed included."""


def seeds_to_try(
    preset: Mapping[str, str],
    *,
    has_failed: bool,
    environment: Mapping[str, str] = os.environ,
) -> tuple[str, ...]:
    """List the hash seeds to recompile a passing program with.

    Args:
        preset: the variables that the user has set for the run. If they set a seed, all
            processes use it, and there is nothing to try.
        has_failed: whether the program is known to have failed in its script.
    """
    if HASH_SEED in preset:
        return ()
    count, used = _SURE if has_failed else _USUAL, environment.get(HASH_SEED)
    seeds = map(str, range(1, count + 2))
    return tuple([seed for seed in seeds if seed != used][:count])


def leaves_out_weights(client: CheckClient) -> bool:
    return client.options.weights is Weights.BESIDE


def recompile_program(client: CheckClient, runs: Runs, bounds: Bounds) -> CheckClient:
    """Compile and run the program again, with its weights inside the package.

    A program that passes is compiled with one hash seed after another, until it fails.

    Returns:
        The client with the package for further runs.

    Raises:
        NotReproducible: the program fails with one of the seeds only.
    """
    if runs.target or not bounds.seeds:
        return _again(client, runs, bounds)
    again = client
    for seed in bounds.seeds:
        again = _again(client, runs, bounds, seed)
        if runs.target:
            _require_failure_here(client, runs, bounds, seed)
            break
        if runs.made_count >= bounds.max_runs or not bounds.allow_compiling(runs):
            break
    return again


def _again(
    client: CheckClient, runs: Runs, bounds: Bounds, seed: str = ""
) -> CheckClient:
    """Compile and run the program again, once.

    If weights were left out and that makes no difference, they stay out.

    Args:
        seed: the hash seed of the fresh interpreter; if empty, Python draws one.
    """
    name, before = f"{client.options.package}.again{seed}", list(runs.seen)
    again = client.with_options(package=name, weights=Weights.INSIDE)
    seen = bounds.recompile_and_run(
        _with_hash_seed(again, seed), fresh=not is_self_explanatory(runs.target)
    )
    if seen is None:
        return client
    runs.seen.append(seen)
    if not leaves_out_weights(client):
        return again
    if replace(runs, seen=before).target or not runs.target:
        return client
    # Passing runs without the weights say nothing about the failure rate with them.
    runs.seen[:] = runs.seen[-1:]
    return again


def _with_hash_seed(client: CheckClient, seed: str) -> CheckClient:
    if not seed:
        return client
    environment = {**client.options.environment, HASH_SEED: seed}
    return client.with_options(environment=environment)


def _require_failure_here(
    client: CheckClient, runs: Runs, bounds: Bounds, seed: str
) -> None:
    """Refuse a failure that depends on a hash seed other than the server's.

    Each run of the package with that seed must fail, and each run of the other one must
    pass; otherwise the difference may be chance, because the failure is flaky.

    Raises:
        NotReproducible: it does; with the seed to set for all processes.
    """
    target, inside = runs.target, client.with_options(weights=Weights.INSIDE)
    assert target is not None
    here, there = (f"{client.options.package}.{at}" for at in ("here", f"again{seed}"))
    if not bounds.allow_compiling(runs):
        return
    passed = bounds.recompile_and_run(inside.with_options(package=here, runs=ENOUGH))
    if passed is None or not passed.passed:
        return
    if target.stage is not Stage.COMPILE:  # a failed compilation leaves nothing to run
        for _ in range(ENOUGH - 1):
            seen = bounds.run(inside.with_options(package=there))
            if seen is None:
                return
            runs.seen.append(seen)
            if not target.admits(seen.signature):
                return
    texts = dict.fromkeys(s.in_words for s in (passed, *runs.seen))
    made = runs.made_count + passed.runs
    raise NotReproducible(runs.wanted, made, list(texts), _to_have(seed))


def _to_have(seed: str) -> MessageText:
    return MessageText.lines(
        [
            "the program fails if it is compiled in a process with "
            f"{HASH_SEED}={seed}, and passes if it is compiled in the process that "
            "runs the checks",
            "check whether a pass or a lowering iterates over a set of strings, "
            "because its order differs between processes",
            MessageText(
                "to use that seed in all processes: ", Flag("--env", (HASH_SEED, seed))
            ),
        ]
    )


def advise_other_hash_seed(times: int) -> MessageText:
    """Tell how often the program was compiled, and how to change the hash seed."""
    often = "once" if times == 1 else f"{times} times"
    return MessageText(
        f"compilation may differ between processes; the program was compiled {often} "
        "here; to change the order of sets of strings: ",
        Flag("--env", (HASH_SEED, "N")),
        " with another N",
    )
