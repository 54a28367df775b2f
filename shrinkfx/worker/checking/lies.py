"""What operators are wrong about in eager, where that has to stay as it was.

An operator with wrong strides may have a wrong shape, too, where a dim is 1: a program
made smaller until it fails by that has another fault than the one that is sought.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

from shrinkfx.worker.eager.fake_mismatch import FakeMismatches, Watcher
from shrinkfx.worker.eager.intermediates import SEED, given_to_one_run
from shrinkfx.worker.graph.rebuild import Rebuilt
from shrinkfx.worker.model import flat_inputs
from shrinkfx.worker.sizes.bindings import bind


def other_lies(run: Rebuilt, expected: Collection[str]) -> str:
    """Run a program in eager, and say what its operators are wrong about instead.

    Args:
        expected: ``FakeMismatch.about`` of what they may be wrong about. One must be.

    Returns:
        '' where that is so, and where eager raises: the check itself says what.
    """
    flat = flat_inputs(run.exported, run.failing)
    lies = FakeMismatches()
    lies.sizes = bind(run.exported, flat)
    torch.manual_seed(SEED)
    try:
        with torch.no_grad():
            given = given_to_one_run(run.exported, flat)
            Watcher(run.exported.graph_module, lies).run(*given)
    except Exception:  # noqa: BLE001 - whatever the user's program raises
        return ""
    found = dict.fromkeys(lie.about for lie in lies.found)
    if not found:
        return f"no operator is wrong about its result; sought: {'; '.join(expected)}"
    if others := [about for about in found if about not in expected]:
        said = "; ".join(others)
        return f"an operator disagrees with its fake kernel in another way: {said}"
    return ""
