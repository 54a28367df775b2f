"""Feed several inputs of one type with one value.

    x, y -> add        becomes        x, x -> add

Cutting a program open leaves many inputs. Fewer of them are easier to read, and
often one will do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from shrinkfx.program.edits import Merge
from shrinkfx.program.skeleton import TensorType
from shrinkfx.program.view import View


class MergeInputs:
    """Propose to merge each input with the next one of its type, then the one after.

    Bundled, they merge all of one type; alone, two at a time, and the one
    between two others may be the one that must stay.
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
