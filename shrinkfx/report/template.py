"""Rendering of the templates next to the code: each text that a run leaves is one."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from shrinkfx.findings.decisions import counted
from shrinkfx.program.display_text import join_words

if TYPE_CHECKING:
    import jinja2

_NAMED = 3
"""Maximum number of names in a sentence."""

_WIDTH = 84
"""Maximum characters of a line in the header of a repro."""


def render(name: str, values: Mapping[str, object]) -> str:
    """Fill in a template.

    Args:
        name: its path in this package. The values in HTML are escaped.
        values: what the template names; a name without a value is an error.
    """
    return _template(name).render(values)


@cache
def _template(name: str) -> jinja2.Template:
    # Imported here, because the import takes 0.1 s.
    import jinja2

    is_html = name.endswith(".html")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_file),
        autoescape=is_html,
        undefined=jinja2.StrictUndefined,
        trim_blocks=not is_html,
        lstrip_blocks=not is_html,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "code_names": lambda names: [f"`{name}`" for name in names],
        "code_quoted": lambda text: f"`` {text} ``" if "`" in text else f"`{text}`",
        "counted": counted,
        "fenced": _fence,
        "join_words": join_words,
        "paragraph": lambda text: f"{_join_lines(text)}\n\n",
        "sentences": _join_lines,
        "shortened": _shorten,
        "wrapped": _wrap,
    }
    return environment.get_template(name)


def read_file(name: str) -> str:
    """Return the text of a file in this package."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _shorten(words: Sequence[str]) -> list[str]:
    others = len(words) - _NAMED
    return [*words[:_NAMED], *([counted(others, "other")] if others > 0 else [])]


def _join_lines(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text.strip())


def _fence(text: str, language: str = "") -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _wrap(text: str, indent: int = 0, width: int = _WIDTH) -> str:
    lines = textwrap.wrap(text, width, subsequent_indent=" " * indent)
    return "\n".join(lines)
