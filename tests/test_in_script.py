"""A failure that cannot be the one of the script that the program comes from."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from shrinkfx.errors import FailsOtherwise, NotReproducible
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.in_script import Failed, ScriptFailure
from shrinkfx.protocol.record import read_value

WRONG = Signature(Kind.MISMATCH, Stage.COMPARE, "values", "output 0 differs")
NOT_COMPILED = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "KeyError", "KeyError: a")
NOT_LOADED = Signature(Kind.LOAD_ERROR, Stage.LOAD, "no symbol", "no symbol")
CRASHED = Signature(Kind.CRASH, Stage.RUN, "memory fault", "SIGSEGV")


@pytest.mark.parametrize(
    ("failed", "seen"),
    [
        (Failed.COMPILE, NOT_COMPILED),
        (Failed.COMPILE, NOT_LOADED),
        (Failed.COMPILE, CRASHED),  # of a kernel that was run to be timed, say
        (Failed.LOAD, NOT_LOADED),
        (Failed.LOAD, CRASHED),
        (Failed.CALL, CRASHED),
        (Failed.CALL, NOT_LOADED),
        (Failed.NOTHING, WRONG),
        (Failed.NOTHING, CRASHED),  # what is read outside was silent there
    ],
)
def test_what_may_be_the_same_is_taken(failed: Failed, seen: Signature) -> None:
    ScriptFailure(failed, "it failed").require(seen)


@pytest.mark.parametrize(
    ("failed", "seen"),
    [
        (Failed.COMPILE, WRONG),
        (Failed.LOAD, WRONG),
        (Failed.LOAD, NOT_COMPILED),
        (Failed.CALL, WRONG),
        (Failed.CALL, NOT_COMPILED),
        (Failed.NOTHING, NOT_COMPILED),
        (Failed.NOTHING, NOT_LOADED),
    ],
)
def test_what_is_another_failure_is_refused(failed: Failed, seen: Signature) -> None:
    with pytest.raises(FailsOtherwise) as caught:
        ScriptFailure(failed, "it failed").require(seen)
    assert isinstance(caught.value, NotReproducible)  # it ends with the same code
    assert str(caught.value) == (
        "the program fails, but differently than in the script:\n"
        "  in the script: it failed\n"
        f"  here: {seen}\n"
        f"to reduce the failure seen here: --until {seen.kind}"
    )


def test_reason_comes_first_and_of_a_death_what_shows_it() -> None:
    failure = ScriptFailure(Failed.CALL, "it died", died=True)
    with pytest.raises(FailsOtherwise) as caught:
        failure.require(WRONG, ("its operators were set by the script",))
    first, second, third = str(caught.value).splitlines()[-3:]
    assert first == "its operators were set by the script"
    assert second.endswith("--until ima")
    assert third.endswith("--until mismatch")


def test_it_is_read_back_from_what_is_noted() -> None:
    failure = ScriptFailure(Failed.CALL, "it died", died=True)
    assert read_value(ScriptFailure | None, asdict(failure)) == failure
