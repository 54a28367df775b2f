"""A failure that cannot be the one of the script that the program comes from."""

from __future__ import annotations

import pytest

from shrinkfx.errors import FailsDifferently, NotReproducible
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.options.options import FailedStep, ScriptFailure

WRONG = Signature(Kind.MISMATCH, Stage.COMPARE, "values", "output 0 differs")
NOT_COMPILED = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "KeyError", "KeyError: a")
NOT_LOADED = Signature(Kind.LOAD_ERROR, Stage.LOAD, "no symbol", "no symbol")
CRASHED = Signature(Kind.CRASH, Stage.RUN, "memory fault", "SIGSEGV")


@pytest.mark.parametrize(
    ("failed", "seen"),
    [
        (FailedStep.COMPILE, NOT_COMPILED),
        (FailedStep.COMPILE, NOT_LOADED),
        (FailedStep.COMPILE, CRASHED),  # of a kernel that was run to be timed, say
        (FailedStep.LOAD, NOT_LOADED),
        (FailedStep.LOAD, CRASHED),
        (FailedStep.CALL, CRASHED),
        (FailedStep.CALL, NOT_LOADED),
        (FailedStep.NOTHING, WRONG),
        (FailedStep.NOTHING, CRASHED),  # what is read outside was silent there
    ],
)
def test_failure_that_matches_the_script_failure_is_accepted(
    failed: FailedStep, seen: Signature
) -> None:
    ScriptFailure(failed, "it failed").require(seen)


@pytest.mark.parametrize(
    ("failed", "seen"),
    [
        (FailedStep.COMPILE, WRONG),
        (FailedStep.LOAD, WRONG),
        (FailedStep.LOAD, NOT_COMPILED),
        (FailedStep.CALL, WRONG),
        (FailedStep.CALL, NOT_COMPILED),
        (FailedStep.NOTHING, NOT_COMPILED),
        (FailedStep.NOTHING, NOT_LOADED),
    ],
)
def test_failure_that_differs_from_the_script_failure_is_refused(
    failed: FailedStep, seen: Signature
) -> None:
    with pytest.raises(FailsDifferently) as caught:
        ScriptFailure(failed, "it failed").require(seen)
    assert isinstance(caught.value, NotReproducible)  # it ends with the same code
    assert str(caught.value) == (
        "the program fails, but differently than in the script:\n"
        "  in the script: it failed\n"
        f"  here: {seen}\n"
        f"to reduce the failure seen here: --until {seen.kind}"
    )


def test_difference_to_a_script_crash_is_reported_with_its_reason_first() -> None:
    failure = ScriptFailure(FailedStep.CALL, "it died", died=True)
    with pytest.raises(FailsDifferently) as caught:
        failure.require(WRONG, ("its operators were set by the script",))
    first, second, third = str(caught.value).splitlines()[-3:]
    assert first == "its operators were set by the script"
    assert second.endswith("--until ima")
    assert third.endswith("--until mismatch")


def test_error_of_dynamo_is_refused_if_the_script_failed_in_inductor() -> None:
    text = "Unsupported: Attempted to wrap invoke_subgraph"
    of_dynamo = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "Unsupported", text)
    with pytest.raises(FailsDifferently, match="--backend aoti"):
        ScriptFailure(FailedStep.COMPILE, "InductorError: KeyError").require(of_dynamo)
    ScriptFailure(FailedStep.COMPILE, f"export raised {text}").require(of_dynamo)
