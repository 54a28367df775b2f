"""Settings of Inductor that are functions or objects, set by a file that is imported.

    torch._inductor.config.post_grad_custom_pre_pass = passes.FuseAddMul()

How an import makes each is found out where it lives: ``watching/by_import.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
        return f"{self._place}{'()' if self.call else ''}"

    @property
    def _place(self) -> str:
        return self.name if self.is_of_script else f"{self.module}.{self.name}"

    def statements(self, setting: str, number: int) -> list[str]:
        """Write what sets a setting to it, once its module is imported."""
        place = self._place
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
    """Write a module that sets settings as it is imported."""
    modules = {each.module for each in settings.values() if not each.is_of_script}
    lines = [f"import {name}" for name in ("torch._inductor.config", *sorted(modules))]
    for number, (name, each) in enumerate(settings.items(), 1):
        lines += ["", *each.statements(name, number)]
    return "\n".join(lines) + "\n"
