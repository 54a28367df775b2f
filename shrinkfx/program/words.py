"""Texts of others, fit to be shown: what a program, a compiler, a command wrote."""

from __future__ import annotations

import hashlib
import re

LINE = 1_000
"""Characters of a line that are shown; of others there may be megabytes."""

_LONG = re.compile(rf"[^\n]{{{4 * LINE + 1},}}")

_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, and where the cursor is
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
)
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


def printable(text: str) -> str:
    r"""Leave nothing in a text that does something to a terminal.

    Sequences that only colour go; any other control character is written as in
    Python, but line breaks and tabs. So are those that turn the direction of writing.

    >>> plain("\x1b[31mred\x1b[0m \x1b]0;title\x07 and\x07 50 %\r100 %")
    'red  and\\x07 50 %\n100 %'
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(_escaped, _SEQUENCE.sub("", text))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def cut(text: str, most: int = LINE) -> str:
    """Keep the beginning of a text; what cannot be encoded is written out."""
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def cut_middle(text: str, most: int) -> str:
    """Keep both ends of a text: a message begins with its cause, or ends with it."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    half = most // 2
    return f"{text[:half]}\n... ({left_out} characters)\n{text[-half:]}"


def cut_apart(text: str, most: int = LINE) -> str:
    """Keep the beginning, and tell texts apart that differ behind it.

    What is short enough, as every text is that was cut, stays as it is.
    """
    if len(text) <= most:
        return text
    end = f" ... {hashlib.sha256(text.encode(errors='replace')).hexdigest()[:12]}"
    return text[: most - len(end)] + end


_KERNEL = 48
"""Letters of a kernel's name in a sentence; Inductor makes some of two hundred."""

_KERNELS = re.compile(
    rf"(?P<code>`[^`]*[^`\w][^`]*`)|\b(?=\w{{{_KERNEL + 1}}})(?:cpp|triton)_\w+"
)
_NUMBER = re.compile(r"_\d+$")


def short_kernels(text: str) -> str:
    """Shorten the names of generated kernels in a sentence.

    What a kernel computes is cut, and its number kept: no two of a program share one.
    Code in backticks stays whole.

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
    """Keep both ends of each line that is far too long to be read."""
    return _LONG.sub(lambda found: cut_middle(found[0], 2 * LINE), text)


def first_line(message: str) -> str:
    """Pick the first line that says something."""
    return cut(next((s.strip() for s in message.splitlines() if s.strip()), ""))


def line_of(text: str, found: re.Match[str]) -> str:
    """Quote the lines that hold a match, without what C++ says before."""
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    line = text[start : len(text) if end < 0 else end]
    return re.sub(r"^\s*what\(\):\s*", "", line).strip()
