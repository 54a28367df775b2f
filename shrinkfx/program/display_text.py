"""Make foreign text fit for display: text of a program, a compiler or a command."""

from __future__ import annotations

import hashlib
import re

LINE = 1_000
"""The number of characters shown of a line; foreign lines may have megabytes."""

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colors and cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
)
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


def printable(text: str) -> str:
    r"""Remove everything from a text that would affect a terminal.

    Escape sequences are removed. Other control characters, except for line breaks and
    tabs, are escaped as in Python, and so are characters that change the writing
    direction.

    >>> plain("\x1b[31mred\x1b[0m \x1b]0;title\x07 and\x07 50 %\r100 %")
    'red  and\\x07 50 %\n100 %'
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(_escaped, _SEQUENCE.sub("", text))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def cut_text(text: str, most: int = LINE) -> str:
    """Return the beginning of a text; characters that cannot be encoded are escaped."""
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def cut_middle(text: str, most: int) -> str:
    """Keep both ends of a text, because a message begins or ends with its cause."""
    omitted = len(text) - most
    if omitted <= 0:
        return text
    half = most // 2
    return f"{text[:half]}\n... ({omitted} characters)\n{text[-half:]}"


def cut_distinctly(text: str, most: int = LINE) -> str:
    """Cut a text, but keep texts distinct that differ only after the cut.

    A text that is short enough is unchanged, so cutting twice has no further effect.
    """
    if len(text) <= most:
        return text
    end = f" ... {hashlib.sha256(text.encode(errors='replace')).hexdigest()[:12]}"
    return text[: most - len(end)] + end


_KERNEL = 48
"""The longest kernel name in a sentence; Inductor's may have two hundred letters."""

_KERNELS = re.compile(
    rf"(?P<code>`[^`]*[^`\w][^`]*`)|\b(?=\w{{{_KERNEL + 1}}})(?:cpp|triton)_\w+"
)
_NUMBER = re.compile(r"_\d+$")


def short_kernels(text: str) -> str:
    """Shorten the names of generated kernels in a sentence.

    The part of the name that lists operators is cut. The number is kept, because it is
    unique in a program. Code in backticks is unchanged.

    >>> short_kernels("cpp_fused_add_cat_hypot_mul_native_layer_norm_sigmoid_split_5")
    'cpp_fused_add_cat_hypot_mul_native_layer_nor..._5'
    """
    return _KERNELS.sub(_shortened, text)


def _shortened(found: re.Match[str]) -> str:
    name = found[0]
    if found["code"]:
        return name
    number = _NUMBER.search(name)
    end = number[0] if number else name[-8:]
    return f"{name[: _KERNEL - 3 - len(end)]}...{end}"


def short_lines(text: str) -> str:
    """Cut the middle of each line that is far too long to read."""
    lines = text.split("\n")
    return "\n".join(
        cut_middle(line, 2 * LINE) if len(line) > 4 * LINE else line for line in lines
    )


def first_line(message: str) -> str:
    """Return the first line that is not blank."""
    return cut_text(next((s.strip() for s in message.splitlines() if s.strip()), ""))


def line_of(text: str, found: re.Match[str]) -> str:
    """Return the lines that contain a match, without the prefixes of C++.

    These are ``what():``, and the function, file and line of a check in compiled code.
    """
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    line = text[start : len(text) if end < 0 else end]
    return re.sub(r"^\s*(what\(\):\s*)?(\w+, /\S+:\d+, )?", "", line).strip()


def join_words(words: list[str] | tuple[str, ...]) -> str:
    """Join words as in a sentence: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
