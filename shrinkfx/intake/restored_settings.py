"""Generate code that restores Inductor settings which are functions or objects.

    torch._inductor.config.post_grad_custom_pre_pass = passes.FuseAddMul()

``watching/by_import.py`` finds out, in the process with the value, how an import makes
it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shrinkfx.preloads.custom_code_sources import mark_as_generated

FILE = "preload_settings"
"""Name of the generated file, without its suffix."""

_MAIN = "__main__"


@dataclass(frozen=True)
class RestoredValue:
    """A Python expression for a value, or why there is none (``ImportDescription``)."""

    module: str = ""
    name: str = ""
    call: str = ""
    state: Mapping[str, str] = field(default_factory=dict)
    why_not: str = ""

    @property
    def is_of_script(self) -> bool:
        """Whether the script itself defines the value, which no process imports."""
        return self.module == _MAIN

    @property
    def is_imported(self) -> bool:
        """Whether importing its module is sufficient to make the value."""
        return not (self.why_not or self.is_of_script)

    @property
    def bound(self) -> str:
        """The name in the module that the expression begins with."""
        return self.name.partition(".")[0]

    @property
    def short_text(self) -> str:
        """The value in short, such as ``passes.FuseAddMul()``."""
        place = self.name if self.is_of_script else f"{self.module}.{self.name}"
        return f"{place}{'()' if self.call else ''}"

    def statements(self, setting: str, number: int, bound: str) -> list[str]:
        """Return the statements that set a setting to the value.

        Args:
            number: the number of the setting in the generated module.
            bound: the name of ``self.bound`` in that module.
        """
        place = bound + self.name.removeprefix(self.bound)
        call = f"{self.call}({place})" if self.call == ".__new__" else self.call
        set_to = f"torch._inductor.config.{setting} = "
        if not self.state:
            return [f"{set_to}{place}{call}"]
        made = f"made_{number}"
        assignments = [
            # As in unpickling, because a class may forbid setting its attributes.
            f"object.__setattr__({made}, {name!r}, {text})"
            for name, text in self.state.items()
        ]
        return [f"{made} = {place}{call}", *assignments, f"{set_to}{made}"]


def render_settings(settings: Mapping[str, RestoredValue]) -> str:
    """Return statements that set settings at import time.

    They import names from modules instead of the modules, so that a repro can contain
    the definitions in place of the imports.
    """
    names = _Names()
    lines = [
        ["", *each.statements(setting, number, names.bound(each))]
        for number, (setting, each) in enumerate(settings.items(), 1)
    ]
    first = ["import torch._inductor.config", *names.imports]
    return "\n".join([*first, *itertools.chain(*lines)]) + "\n"


def render_settings_module(settings: Mapping[str, RestoredValue]) -> str:
    """Return the text of a module that only sets settings."""
    return mark_as_generated(
        render_settings(settings), "settings as they were where it was called"
    )


@dataclass
class _Names:
    """Assigns a distinct name to each imported object."""

    known: dict[tuple[str, str], str] = field(default_factory=dict)

    def bound(self, each: RestoredValue) -> str:
        if each.is_of_script:
            return each.bound
        key = each.module, each.bound
        if key not in self.known:
            number = sum(bound == each.bound for _, bound in self.known)
            self.known[key] = f"{each.bound}_{number + 1}" if number else each.bound
        return self.known[key]

    @property
    def imports(self) -> Iterator[str]:
        for (module, bound), name in self.known.items():
            renamed = f" as {name}" if name != bound else ""
            yield f"from {module} import {bound}{renamed}"
