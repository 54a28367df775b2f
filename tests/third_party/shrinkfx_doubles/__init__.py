"""Remove the second of two equal operators in a row.

    x -> relu -> relu -> b        becomes        x -> relu -> b

Stacks repeat themselves; what fails in one of two equal operators often fails in the
other one, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from shrinkfx.program.edits import Bypass
from shrinkfx.program.view import View


class DropDoubles:
    """Propose to bypass an operator that reads another call of the same one."""

    name = "drop_doubles"
    combines = True

    def propose(self, view: View) -> Iterator[Bypass]:
        target = {name: view.skeleton.node(name).target for name in view.operators}
        for name in reversed(view.operators):
            for operand in dict.fromkeys(view.operands(name)):
                same = target.get(operand) == target[name]
                if same and view.same_value_type(name, operand):
                    yield Bypass(name, operand)
