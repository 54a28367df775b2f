"""Run PyTorch's AOTI minifier on a failing program, and judge what it leaves.

Its launcher is given what a user can give it who knows the failure: a text that the
failure says, and ``--accuracy`` where values are wrong. If it refuses the program then,
it is asked again with less: ``attempts`` says with what.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tools import (
    HERE,
    Case,
    Ran,
    Result,
    caches_of,
    ended,
    environment_of,
    limits_of,
    run,
    server_of,
)

from shrinkfx.check.client.server import GUARDED_WORKER, WORKER
from shrinkfx.check.oracle import CheckClient
from shrinkfx.errors import ShrinkfxError
from shrinkfx.failure.signature import Kind, is_until_target
from shrinkfx.protocol.choices import Guard

COMPARING = (Kind.MISMATCH, Kind.NAN)
FAULTS = (Kind.IMA, Kind.CRASH)

WRONG = "Bad accuracy detected"
"""What the peer's own exception says of wrong values."""


class Outcome(StrEnum):
    """What the peer made of a program."""

    REDUCED = "reduced"
    """What it leaves fails as asked, alone and in its repro."""
    SLIPPED = "slipped"
    """What it leaves does not."""
    REFUSED = "refused"
    """It says that the program did not fail."""
    DIED = "died"
    """So did its process, of the failure."""
    CUT_OFF = "cut off"
    """It left nothing within the limit."""
    RAISED = "raised"
    """It ended with an exception of its own, and left nothing."""


def with_pytorch(case: Case, folder: Path, limit: float) -> Result:
    """Run the peer, and judge what it leaves."""
    asked = ask(case, folder, limit)
    outcome, answer = asked.outcome, asked.left
    refails = bool(answer) and _refails(case, folder, limit)
    if answer:
        shown = refails and _shows(case, Path(answer["program"]))
        outcome = Outcome.REDUCED if shown else Outcome.SLIPPED
    said = asked.ran.said.strip() or "nothing"
    return Result(
        ended(asked.ran, said.splitlines()[-1]),
        asked.checks,
        asked.ran.cpu,
        asked.ran.cpu,
        asked.ran.wall,
        answer.get("operators"),
        answer.get("dynamic_dims"),
        refails=refails,
        self_contained=refails and _refails_alone(case, folder, limit),
        outcome=outcome,
        flags=asked.flags,
    )


@dataclass(frozen=True)
class Asked:
    """A run of the peer.

    Attributes:
        outcome: if it left nothing.
        left: the path of the program that it left, and how large that is.
    """

    ran: Ran
    flags: tuple[str, ...]
    outcome: Outcome
    checks: int
    left: dict[str, Any]


def ask(case: Case, folder: Path, limit: float) -> Asked:
    """Run the peer until it does not refuse the program; that last run counts."""
    for number, flags in enumerate(attempts(case)):
        if folder.exists():
            folder.rename(folder.with_name(f"refused_{number}"))
        ran = _minify(case, folder, limit, flags)
        outcome = outcome_of(ran)
        if outcome is not Outcome.REFUSED:
            break
    queries, answer = folder / "queries", folder / "answer.json"
    checks = len(queries.read_text().splitlines()) if queries.exists() else 0
    left = json.loads(answer.read_text()) if answer.exists() else {}
    return Asked(ran, flags, outcome, checks, left)


def attempts(case: Case) -> list[tuple[str, ...]]:
    """List what the launcher is given, one after the other while it refuses.

    Integers are compared with ``--strict-accuracy`` only. A flaky failure is tried
    again as it is.
    """
    if case.until in COMPARING:
        told = ("--check-str", WRONG)
        return [("--accuracy", *told), ("--strict-accuracy", *told)]
    # An exception's name is in parentheses there: ``InductorError('...')``.
    text = unanchored(case.message).removeprefix("InductorError: ")
    plain: list[tuple[str, ...]] = [()]
    if _LITERAL.fullmatch(text):
        plain = [("--check-str", text)] * case.tries + plain
    return [*plain, ("--accuracy",)] if case.until in FAULTS else plain


_LITERAL = re.compile(r"[\w :;,'<=-]+")
"""A pattern that stands for itself, and that the peer can thus be told."""


def unanchored(pattern: str) -> str:
    return pattern.removeprefix("^").removesuffix("$")


def _minify(case: Case, folder: Path, limit: float, flags: tuple[str, ...]) -> Ran:
    """Run the peer, and have it counted what it left."""
    job = folder / "job.json"
    about = {
        "model": str(case.model),
        "inputs": str(case.inputs or ""),
        "preloads": case.preloads,
        "flags": flags,
        "folder": str(folder),
    }
    folder.mkdir(parents=True)
    minifier = [sys.executable, "-W", "ignore", str(HERE / "torch_minifier.py")]
    job.write_text(json.dumps({**about, "count": False}))
    ran = run([*minifier, str(job)], folder, limit, environment_of(case))
    (folder / "log").rename(folder / "log_of_minifier")
    job.write_text(json.dumps({**about, "count": True}))
    run([*minifier, str(job)], folder, limit)
    return ran


def outcome_of(ran: Ran) -> Outcome:
    """Say how the peer came to its end, if it leaves nothing."""
    if ran.cut:
        return Outcome.CUT_OFF
    if ran.code < 0:
        return Outcome.DIED
    refused = "Input graph did not fail the tester" in ran.said
    return Outcome.REFUSED if refused else Outcome.RAISED


def _shows(case: Case, program: Path) -> bool:
    """Tell whether a program shows the failure, and not some other that looks alike.

    A memory fault may need guard pages to show.
    """
    faults = case.until in FAULTS
    options: list[dict[str, Any]] = [{"guard_pages": Guard.AFTER}] if faults else []
    command = GUARDED_WORKER if faults else WORKER
    try:
        with server_of(case, program, command=command) as server:
            compiler = CheckClient(server, limits_of(case))
            return any(
                _is_asked_for(case, compiler.with_options(**more))
                for more in [{}, *options]
                for _ in range(case.tries)
            )
    except ShrinkfxError:
        return False


def _is_asked_for(case: Case, compiler: CheckClient) -> bool:
    failure = compiler.run_input_program()[0].signature
    return bool(
        failure
        and is_until_target(case.until, failure)
        and failure.matches_text(case.message)
    )


_WITH_PRELOADS = """
import os, runpy, sys
for preload in sys.argv[1:-1]:
    sys.path.append(os.path.dirname(preload))
    runpy.run_path(preload)
script, sys.argv = sys.argv[-1], sys.argv[:1]
runpy.run_path(script, run_name="__main__")
"""


def _refails(case: Case, folder: Path, limit: float) -> bool:
    command = [sys.executable, "-W", "ignore", "-c", _WITH_PRELOADS]
    command += [*case.preloads, str(folder / "repro.py")]
    return _fails_in(case, command, folder / "again", limit, caches_of(folder))


def _refails_alone(case: Case, folder: Path, limit: float) -> bool:
    """Run the repro where nothing that was beside it can be found."""
    alone = folder.with_name("alone")
    alone.mkdir()
    shutil.copy(folder / "repro.py", alone)
    hidden = folder.rename(folder.with_name("hidden"))
    try:
        command = [sys.executable, "-W", "ignore", "repro.py"]
        return _fails_in(case, command, alone, limit, caches_of(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the repro may make it anew
        hidden.rename(folder)


def _fails_in(
    case: Case, command: list[str], folder: Path, limit: float, caches: Path
) -> bool:
    limit, environment = min(limit, limits_of(case).timeout_s), environment_of(case)
    runs = (run(command, folder, limit, environment, caches) for _ in range(case.tries))
    return any(is_the_failure(case, ran) for ran in runs)


def is_the_failure(case: Case, ran: Ran) -> bool:
    """Tell from its end, and from what it said, whether a repro fails as asked."""
    if ran.cut:
        return case.until == Kind.HANG
    wrong = ran.code != 0 and f"AccuracyError: {WRONG}" in ran.said
    if case.until in COMPARING:
        return wrong
    if case.until in FAULTS and (wrong or ran.code < 0):
        return True  # ``_shows`` sees the fault itself
    # The peer's log has the name of a module before what an exception says.
    return ran.code != 0 and bool(re.search(unanchored(case.message), ran.said))
