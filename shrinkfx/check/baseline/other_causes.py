"""Check whether a failure has another cause: invalid inputs, or an earlier NaN."""

from __future__ import annotations

import re
from collections.abc import Callable

from shrinkfx.check.oracle import CheckClient
from shrinkfx.failure.signature import Kind, Signature, Stage


def other_cause(
    client: CheckClient, target: Signature, is_known: Callable[[Signature], bool]
) -> str:
    """Run the program with input guards and, for a NaN, with checks of all values.

    Every package has the guards, and a variable enables them at run time, so a kept
    package is run again. Checks of values need a build of their own.

    Args:
        is_known: tells whether a failure also shows without the checks.

    Returns:
        A description of the possible cause, or ''. A check that fails where the program
        passes is no cause.
    """
    if not may_be_the_inputs(target):
        return ""
    client, under, again = client.with_options(sanity=True), _GUARDS, f"--env {_GUARDS}"
    checks = "sizes and strides"
    if target.kind is Kind.NAN:
        inductor = {**client.options.inductor, "nan_asserts": True}
        client = client.with_options(package=None, inductor=inductor)
        under, checks = f"{_GUARDS} and nan_asserts", f"{checks}, and values"
        again += " --inductor-config nan_asserts=True"
    seen = client.run_input_program()[0]
    shown = seen.signature
    if seen.unresolved or shown is None or is_known(shown):
        return ""
    if shown.stage is Stage.PASSING:
        return ""
    if shown.kind is Kind.CHECK_INPUTS:
        specialised = _SPECIALISED if _SIZE_OF_ONE.search(shown.text) else ""
        return (
            f"with {under} the program refuses its inputs ({shown.text}); the inputs "
            f"may be at fault. {specialised}To use other inputs: --inputs FILE; to "
            "reduce the refusal: --until check-inputs"
        )
    return (
        f"with {under} (checks {checks}) the program fails differently: {shown}; that "
        f"may be the cause. To reduce that failure instead: --until {shown.kind} "
        f"{again}"
    )


_SIZE_OF_ONE = re.compile(r"expected it to be >= 2, but got: 1\b")
"""The message in ``torch/_inductor/codegen/cpp_wrapper_cpu.py``."""

_SPECIALISED = (
    "torch.export specializes sizes 0 and 1: a dynamic dim covers sizes from 2 up. "
    "Export the program separately for size 1. "
)

_GUARDS = "AOTI_RUNTIME_CHECK_INPUTS=1"


def may_be_the_inputs(target: Signature) -> bool:
    """Tell whether the inputs may cause a failure of this kind."""
    ran = target.stage in (Stage.RUN, Stage.COMPARE)
    return ran and target.kind not in (Kind.CHECK_INPUTS, Kind.HANG, Kind.OOM)
