"""Check that fake-kernel mismatches of a candidate are those of the input program.

An operator with wrong strides may also have a wrong shape if a dim is 1. A candidate
that fails because of that has another bug than the one that is searched for.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

from shrinkfx.worker.eager.fake_mismatch import MismatchRecorder, Watcher
from shrinkfx.worker.eager.intermediates import SEED, copy_run_inputs
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import flat_inputs
from shrinkfx.worker.sizes.bindings import bind_symbols


def find_unexpected_mismatches(run: RebuiltCandidate, expected: Collection[str]) -> str:
    """Run a program in eager; return how its fake-kernel mismatches are unexpected.

    Args:
        expected: ``FakeMismatch.about`` of the allowed mismatches. One must occur.

    Returns:
        A message; '' if they are as expected, or if eager raises, because the check
        itself reports that.
    """
    flat = flat_inputs(run.exported, run.failing)
    recorder = MismatchRecorder()
    recorder.sizes = bind_symbols(run.exported, flat)
    torch.manual_seed(SEED)
    try:
        with torch.no_grad():
            inputs = copy_run_inputs(run.exported, flat)
            Watcher(run.exported.graph_module, recorder).run(*inputs)
    except Exception:  # noqa: BLE001 - whatever the user's program raises
        return ""
    mismatches = dict.fromkeys(mismatch.about for mismatch in recorder.found)
    if not mismatches:
        return f"no operator is wrong about its result; sought: {'; '.join(expected)}"
    if unexpected := [about for about in mismatches if about not in expected]:
        text = "; ".join(unexpected)
        return f"an operator disagrees with its fake kernel in another way: {text}"
    return ""
