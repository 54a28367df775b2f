"""The record of all options of a run, as JSON and as a shell command.

To add an option, add a field to the record of its group in ``options/failing.py`` or
``options/running.py``, or to ``ComparisonOptions`` in ``protocol/requests.py`` if the
worker's checks use it. The parser, the check of its value, the journal and the
reference are made from that field. Add a keyword of the same name to ``minify()`` in
``api/minifying.py``, and read the option as ``options.NAME`` where it has its effect.
``make reference`` writes its row into ``docs/reference.md``; ``tests/test_options.py``
reports missing parts.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, get_type_hints

from shrinkfx.flags import Option, list_record_options
from shrinkfx.options.failing import FailureOptions, ProgramOptions, TimeoutOptions
from shrinkfx.options.in_script import ScriptFailure
from shrinkfx.options.running import (
    BudgetOptions,
    ExplainOptions,
    OutputOptions,
    SearchOptions,
    Sweeping,
)
from shrinkfx.options.values import REQUIRED_VARIABLES
from shrinkfx.protocol.record import read_value
from shrinkfx.protocol.requests import CheckOptions, ComparisonOptions

__all__ = ["Options", "Sweeping", "format_command"]


_COMPARISON = [f.name for f in fields(ComparisonOptions)]


@dataclass(frozen=True, kw_only=True)
class Options(
    FailureOptions,
    ComparisonOptions,
    TimeoutOptions,
    ProgramOptions,
    BudgetOptions,
    SearchOptions,
    ExplainOptions,
    OutputOptions,
):
    """All options of a run, in one record.

    ``docs/reference.md`` describes the fields of the base classes.

    Attributes:
        model: path of the program.
        name: name of the program if it is not a ``.pt2`` of the user: the captured
            script, the dump, or the class of the Python object; '' means the file name
            of ``model``.
        command: the command that started the run, for the header of the repro.
        cwd: the folder where that command ran, in which modules and ``check`` are
            looked up; None means the current folder.
        lacking: sentences about state of the failing run that this run lacks.
        in_script: the failure in the script that the program was captured from, if
            known.
        sweeping: settings of a sweep over sizes; None for a reduction.
    """

    name: str = ""
    command: str = ""
    cwd: Path | None = None
    lacking: tuple[str, ...] = ()
    in_script: ScriptFailure | None = None
    sweeping: Sweeping | None = None

    @property
    def called(self) -> str:
        """The name of the program in messages."""
        return self.name or self.model.name

    @property
    def files(self) -> tuple[Path, ...]:
        """Paths of the program, its inputs, and the preloads given as files."""
        preloads = [Path(name) for name in self.preload if "/" in name]
        return (self.model, *([self.inputs] if self.inputs else []), *preloads)

    def with_files(self, find: Callable[[Path], Path]) -> Self:
        """Replace the paths of the program, its inputs and its preloads."""
        return replace(
            self,
            model=find(self.model),
            inputs=find(self.inputs) if self.inputs else None,
            preload=tuple(
                str(find(Path(name))) if "/" in name else name for name in self.preload
            ),
        )

    @property
    def comparison_settings(self) -> dict[str, float]:
        """The options that were set for the comparison with eager, by name."""
        settings = {name: getattr(self, name) for name in _COMPARISON}
        return {k: v for k, v in settings.items() if v is not None and v is not False}

    def compared(self, checks: CheckOptions) -> CheckOptions:
        """Add the options for the comparison with eager to those of a check."""
        settings = {name: getattr(self, name) for name in _COMPARISON}
        return replace(checks, **settings)

    def with_required_variables(self) -> Self:
        """Set the variables that ``until`` needs, unless the user has set them."""
        variables = REQUIRED_VARIABLES.get(self.until, {})
        return replace(self, environment={**variables, **self.environment})

    @property
    def budget(self) -> tuple[int | None, float | None]:
        return self.max_checks, self.max_minutes

    def to_json(self) -> dict[str, Any]:
        """Convert the options to JSON with absolute paths, without ``out``.

        Absolute paths mean the same if the run is resumed from another folder.
        """
        data = asdict(self)
        del data["out"]
        data["cwd"] = str(self.cwd or Path.cwd())
        data["model"] = str(self.model.resolve())
        data["inputs"] = str(self.inputs.resolve()) if self.inputs else None
        data["preload"] = [
            str(Path(name).resolve()) if os.path.isfile(name) else name
            for name in self.preload
        ]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the options from the JSON of ``to_json``."""
        hints = get_type_hints(cls)
        return cls(**{name: read_value(hints[name], data[name]) for name in data})


def format_command(options: Options) -> str:
    """Return the command that starts a run with these options.

    For a sweep, the command reduces the program without the sweep.
    """
    defaults, words = Options(Path()), ["shrinkfx", str(options.model)]
    for option in list_record_options(Options):
        value = getattr(options, option.name)
        if value != getattr(defaults, option.name):
            words += _format_option(option, value)
    return shlex.join(words)


def _format_option(option: Option, value: Any) -> Iterator[str]:  # noqa: ANN401 - any field's
    """Yield the flag, and the text that the parser reads as this value."""
    if option.takes is bool:
        yield option.flag
        return
    if isinstance(value, Mapping):
        texts = [_format_pair(option, *pair) for pair in value.items()]
    elif isinstance(value, tuple):
        texts = [*value] if option.repeated else [",".join(value)]
    else:
        texts = [str(value)]
    for text in texts:
        yield from (option.flag, text)


def _format_pair(option: Option, name: str, value: object) -> str:
    """Return ``KEY=VALUE``.

    The value is quoted if the option would read it differently without quotes, for
    example a string that looks like a number.
    """
    text = f"{name}={value}"
    return (
        text if option.convert_value([text]) == {name: value} else f"{name}={value!r}"
    )
