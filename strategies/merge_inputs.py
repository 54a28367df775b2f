"""Feed several inputs of one type with one value.

    x, y -> add        becomes        x, x -> add

Cuts give a program many inputs. Fewer inputs are easier to read, and often one is
enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from shrinkfx.program.edits import Merge
from shrinkfx.program.skeleton import TensorType
from shrinkfx.program.view import View


class MergeInputs:
    """Propose to merge each input with the next of its type, then with the second next.

    Bundled, these edits merge all inputs of one type; alone, they merge two. The second
    next is proposed too, because the input between two others may be the one that must
    stay.
    """

    name = "merge_inputs"
    combines = True

    def propose(self, view: View) -> Iterator[Merge]:
        groups: dict[TensorType, list[str]] = defaultdict(list)
        for name in view.inputs:
            if (value := view.skeleton.node(name).value) is not None:
                groups[value].append(name)
        for distance in (1, 2):
            for names in groups.values():
                for pair in zip(names, names[distance:], strict=False):
                    yield Merge(frozenset(pair))
