"""A command that is shown asks for what it was made of."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.cli.parser import make_parser
from shrinkfx.cli.task import read_options
from shrinkfx.options.options import Options, format_command

ASKED: list[dict[str, Any]] = [
    {},
    {"until": "nan", "match": "output 0"},
    {"inputs": Path("out dir/failing-1.pt"), "out": Path("there")},
    {"preload": ("ops", "my ops.py"), "device": "cuda:1", "gpus": ("0", "1")},
    {"inductor": {"max_autotune": True, "text": "abc", "number": "1", "tiles": [1, 2]}},
    {"environment": {"A": "1", "B": "", "C": "x=y"}},
    {"timeout_s": 2.5, "rtol": 1e-07, "atol": 0.0, "strict": True, "jobs": 3},
    {"guard_pages": "on", "sanitizer": "racecheck", "keep": ("sizes", "values")},
    {
        "strategies": ("drop_nodes", "make_dims_static"),
        "explain": True,
        "title": "It's",
    },
    {"max_minutes": 0.1234567},
]


@pytest.mark.parametrize("asked", ASKED)
def test_formatted_command_parses_to_the_same_options(asked: dict[str, Any]) -> None:
    options = replace(Options(Path("my model.pt2")), **asked)
    program, *words = shlex.split(format_command(options))
    assert program == "shrinkfx"
    assert read_options(make_parser().parse_args(words), "") == options


def test_default_options_are_omitted_from_the_command() -> None:
    assert (
        format_command(Options(Path("model.pt2"), command="x")) == "shrinkfx model.pt2"
    )
