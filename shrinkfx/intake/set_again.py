"""Settings of Inductor that are functions or objects, set by a file that is imported.

    torch._inductor.config.post_grad_custom_pre_pass = passes.FuseAddMul()

How an import makes each is found out where it lives: ``watching/by_import.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shrinkfx.report.whose_code import as_ours

FILE = "preload_settings"
"""What the file is called, without its suffix."""

_MAIN = "__main__"


@dataclass(frozen=True)
class SetAgain:
    """How Python says a value, or why it cannot: what ``ByImport`` has found out."""

    module: str = ""
    name: str = ""
    call: str = ""
    state: Mapping[str, str] = field(default_factory=dict)
    why_not: str = ""

    @property
    def is_of_script(self) -> bool:
        """Whether it is of the script itself, which nobody imports."""
        return self.module == _MAIN

    @property
    def is_imported(self) -> bool:
        """Whether importing its module is all that it takes to make it."""
        return not (self.why_not or self.is_of_script)

    @property
    def bound(self) -> str:
        """Name what has to be there in its module."""
        return self.name.partition(".")[0]

    @property
    def said(self) -> str:
        """Say it in a few words: ``passes.FuseAddMul()``."""
        place = self.name if self.is_of_script else f"{self.module}.{self.name}"
        return f"{place}{'()' if self.call else ''}"

    def statements(self, setting: str, number: int, bound: str) -> list[str]:
        """Write what sets a setting to it.

        Args:
            number: of the setting in its module.
            bound: what ``self.bound`` is called there.
        """
        place = bound + self.name.removeprefix(self.bound)
        call = f"{self.call}({place})" if self.call == ".__new__" else self.call
        set_to = f"torch._inductor.config.{setting} = "
        if not self.state:
            return [f"{set_to}{place}{call}"]
        made = f"made_{number}"
        held = [
            # As unpickling does: a class may refuse that its attributes are set.
            f"object.__setattr__({made}, {name!r}, {text})"
            for name, text in self.state.items()
        ]
        return [f"{made} = {place}{call}", *held, f"{set_to}{made}"]


def text_that_sets(settings: Mapping[str, SetAgain]) -> str:
    """Write statements that set settings as a module is imported.

    They read names of modules and no module, so that a repro may do without these.
    """
    names = _Names()
    lines = [
        ["", *each.statements(setting, number, names.bound(each))]
        for number, (setting, each) in enumerate(settings.items(), 1)
    ]
    first = ["import torch._inductor.config", *names.imports]
    return "\n".join([*first, *itertools.chain(*lines)]) + "\n"


def module_that_sets(settings: Mapping[str, SetAgain]) -> str:
    """Write a module that does nothing else."""
    return as_ours(
        text_that_sets(settings), "settings as they were where it was called"
    )


@dataclass
class _Names:
    """Gives names to what is imported, each another one."""

    known: dict[tuple[str, str], str] = field(default_factory=dict)

    def bound(self, each: SetAgain) -> str:
        if each.is_of_script:
            return each.bound
        key = each.module, each.bound
        if key not in self.known:
            same = sum(bound == each.bound for _, bound in self.known)
            self.known[key] = f"{each.bound}_{same + 1}" if same else each.bound
        return self.known[key]

    @property
    def imports(self) -> Iterator[str]:
        for (module, bound), name in self.known.items():
            renamed = f" as {name}" if name != bound else ""
            yield f"from {module} import {bound}{renamed}"
