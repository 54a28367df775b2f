"""Parse generated kernels: lines that check an index, and the origin of that index.

Inductor writes C++ and Triton in the same style: each value has a name such as ``tmp4``
and is assigned once in its block. So this module searches for names and does not
interpret expressions; it quotes expressions that it does not understand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_CHECK = re.compile(
    r"(?:AOTI_TORCH_CHECK|TORCH_CHECK|tl\.device_assert)\((?P<holds>.*), "
    r"\"index out of bounds: (?P<said>[^\"]*)\"\)"
)
_RANGE = re.compile(r"^(?:(?P<lower>.+?) <= )?(?P<index>.+?)(?: < (?P<upper>.+))?$")
_VALUE = re.compile(r"\b_?tmp\d+(?:_\w+)?\b")
_ASSIGNED = re.compile(
    r"^\s*(?:(?:const )?[\w:<>, ]+ )?(?P<name>_?tmp\w*) = ?(?P<rest>.*)$"
)
COPY = re.compile(
    r"^(?:c10::convert<\w+>\()?(tmp\d+)\)?$|"
    r"(?:(?<=static_cast<int64_t>\())?\b(tmp\d+)(?:\[x\d+_inner\]\)|\.store\(tmpbuf)"
)
"""A line that gives the same value, or each lane of it, another name."""

_POINTER = re.compile(r"\b(?:in_out_ptr|in_ptr|out_ptr)\d+\b")
_DEFINED = re.compile(r"\b(?:void|def)\s+(?P<kernel>\w+)\s*\((?P<parameters>[^)]*)\)")


@dataclass(frozen=True)
class IndexCheck:
    """A line that checks the bounds of an index.

    Attributes:
        line: the line number, from 0.
        holds: the condition, in the language of the code.
        index: the checked expression, in most cases a name.
        lower: the lower limit in the code, or ''; ``upper`` is the upper limit.
    """

    line: int
    holds: str
    text: str
    index: str
    lower: str
    upper: str


@dataclass(frozen=True)
class Assignment:
    """A statement that assigns a name, possibly over several lines."""

    line: int
    last_line: int
    name: str
    expression: str

    @property
    def pointers(self) -> tuple[str, ...]:
        """The parameters that the statement reads through."""
        return pointers_in(self.expression)


class Code:
    """The source of one kernel."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.text = text
        self._braces = "{" in text and "def " not in text.partition("{")[0]

    def parameters(self) -> tuple[str, ...]:
        """Return the names of the kernel's parameters; Triton's constants come last."""
        found = _DEFINED.search(self.text)
        entries = found["parameters"].split(",") if found else []
        names = (re.findall(r"\w+", entry.partition(":")[0]) for entry in entries)
        return tuple(words[-1] for words in names if words)

    def checks(self) -> tuple[IndexCheck, ...]:
        """List the lines that check an index."""
        return tuple(
            _index_check(number, found)
            for number, line in enumerate(self.lines)
            if (found := _CHECK.search(line))
        )

    def definition(self, name: str, above: int) -> Assignment | None:
        """Find the assignment that determines the value of a name in a line."""
        for number in self._in_scope(above):
            found = _ASSIGNED.match(self.lines[number])
            if found and found["name"] == name:
                return self._whole(number, found)
        return None

    def statement(self, line: int) -> Assignment | None:
        """Return the assignment that begins in a line; None if the line begins none."""
        found = _ASSIGNED.match(self.lines[line])
        return self._whole(line, found) if found else None

    def history(self, expression: str, above: int) -> tuple[Assignment, ...]:
        """List the assignments that an expression depends on, in source order."""
        steps: dict[int, Assignment] = {}
        open_ = [(name, above) for name in _VALUE.findall(expression)]
        while open_:
            name, line = open_.pop()
            step = self.definition(name, line)
            if step is None or step.line in steps:
                continue
            steps[step.line] = step
            for number in range(step.line, step.last_line + 1):
                text = self.lines[number]
                text = text.partition("=")[2] if number == step.line else text
                open_ += [(word, number) for word in _VALUE.findall(text)]
        return tuple(steps[line] for line in sorted(steps))

    def head(self) -> int:
        """Return the line number of the kernel's definition; 0 if there is none."""
        found = _DEFINED.search(self.text)
        return self.text.count("\n", 0, found.start()) if found else 0

    def around(self, line: int, lines: int = 3) -> range:
        """Return the numbers of the lines around a line, within the kernel."""
        first = max(min(self.head(), line), line - lines)
        return range(first, min(len(self.lines), line + lines + 1))

    def _in_scope(self, above: int) -> Iterator[int]:
        """Yield line numbers upwards, without those of blocks that have ended."""
        ended = 0
        for number in range(above - 1, -1, -1):
            for mark in reversed(self.lines[number] if self._braces else ""):
                if mark == "}":
                    ended += 1
                elif mark == "{":
                    ended = max(0, ended - 1)
            if not ended:
                yield number

    def _whole(self, line: int, found: re.Match[str]) -> Assignment:
        """Read a statement to its end; a C++ statement may contain a lambda."""
        text, last = found["rest"].strip(), line
        if self._braces:
            while not (text.endswith(";") and text.count("{") == text.count("}")):
                last += 1
                if last >= len(self.lines):
                    return Assignment(line, line, found["name"], found["rest"].strip())
                text += " " + self.lines[last].strip()
        return Assignment(line, last, found["name"], text.rstrip(";").strip())


def _index_check(line: int, found: re.Match[str]) -> IndexCheck:
    condition = found["said"]
    parts = _RANGE.match(condition)
    assert parts is not None  # the pattern matches any text
    lower, index, upper = (parts[n] or "" for n in ("lower", "index", "upper"))
    return IndexCheck(line, found["holds"], condition, index, lower, upper)


def pointers_in(line: str) -> tuple[str, ...]:
    """Return the parameters that a line reads or writes through."""
    return tuple(dict.fromkeys(_POINTER.findall(line)))
