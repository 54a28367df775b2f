"""Parse error messages of the compilers of generated code: g++, its linker, Triton."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shrinkfx.program.display_text import printable


@dataclass(frozen=True)
class Complaint:
    """The first error of a compiler.

    Attributes:
        text: the message.
        file: the file of the error; '' if the message names none. ``line`` and
            ``column`` start at 1, and are 0 if unknown.
        function: the generated function that contains the line, or ''.
        code: the line, and the lines before it that the compiler prints.
        caret: the marker that the compiler prints below the line, in its columns.
    """

    text: str
    file: str = ""
    line: int = 0
    column: int = 0
    function: str = ""
    code: tuple[str, ...] = ()
    caret: str = ""


_GCC = re.compile(
    r"^(?P<file>[^\s:][^\n:]*):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: "
    r"(?P<text>[^\n]+)(?:\n *\d+ \| ?(?P<code>[^\n]*)\n *\| ?(?P<caret>[ ^~]*))?",
    re.MULTILINE,
)
_FUNCTION = re.compile(r"In (?:member )?function \W[^\n(]*?([\w:]+)\(")
_FROM_HERE = re.compile(
    r"^([^\s:][^\n:]*\.cpp):(\d+):(\d+):   +required from", re.MULTILINE
)
_LINKER = re.compile(
    r"(?P<file>[^\s:]+\.cpp):(?P<line>\d+): (?P<text>undefined reference to [^\n]+)"
    r"|(?P<alone>undefined (?:reference|symbol)[^\n]*|cannot find -l[^\n]*)"
)
_IN_FUNCTION = re.compile(r"in function [`'](\w+)'?")
_TRITON = re.compile(r"\bat (\d+):(\d+):\n(.*?\n) *\^\n(.+)", re.DOTALL)
_DEFINED = re.compile(r"^def (\w+)\(", re.MULTILINE)


def parse_gcc_error(text: str) -> Complaint | None:
    """Parse the first error of g++; if there is none, that of the linker."""
    found = _GCC.search(text)
    if found is None:
        return _linker(text)
    before = text[: found.start()]
    functions = _FUNCTION.findall(before)
    file, line, column = found["file"], int(found["line"]), int(found["column"])
    code, caret = found["code"], found["caret"]
    callers = _FROM_HERE.findall(before)
    if not file.endswith(".cpp") and callers:  # in a template: use its caller
        file, line, column = callers[-1][0], int(callers[-1][1]), int(callers[-1][2])
        code, caret = "", ""
    return Complaint(
        text=printable(found["text"]),
        file=file,
        line=line,
        column=column,
        function=functions[-1] if functions else "",
        code=(code,) if code else (),
        caret=(caret or "").rstrip(),
    )


def _linker(text: str) -> Complaint | None:
    found = _LINKER.search(text)
    if found is None:
        return None
    functions = _IN_FUNCTION.findall(text[: found.end()])
    message = printable((found["text"] or found["alone"]).strip())
    function = functions[-1] if functions else ""
    file, line = found["file"] or "", int(found["line"] or 0)
    return Complaint(message, file, line, function=function)


def parse_triton_error(text: str) -> Complaint | None:
    """Parse an error of Triton, which prints the kernel up to the line of the error."""
    found = _TRITON.search(text)
    if found is None:
        return None
    code = found[3].rstrip("\n").split("\n")
    defined = _DEFINED.findall(found[3])
    message = found[4].strip().partition("\n")[0]
    return Complaint(
        text=printable(message),
        line=int(found[1]),
        column=int(found[2]) + 1,
        function=defined[-1] if defined else "",
        code=tuple(code),
        caret=" " * int(found[2]) + "^",
    )
