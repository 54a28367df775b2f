"""No false alarm: models of operators of one kind each, all probes.

Three in an ordinary run, all with ``-m slow``.
"""

from __future__ import annotations

import pytest
from healthy_kinds import KINDS
from test_healthy_models import check

ROUNDED = {
    "grouped_queries": "float16",
    "convolutions": "bfloat16",
    "bags": "float16",
    "norms": "bfloat16",
    "scattered": "float16",
}
"""Those whose values a smaller float only rounds: it puts none elsewhere."""

USUAL = [
    ("bags", "float32", "dynamic"),
    ("scattered", "float32", "static"),
    ("several_dims", "float32", "dynamic"),
]
ALL = [(name, "float32", shapes) for name in KINDS for shapes in ("static", "dynamic")]
ALL += [(name, dtype, "dynamic") for name, dtype in ROUNDED.items()]


@pytest.mark.parametrize(("name", "precision", "shapes"), USUAL)
def test_healthy_kind_gives_no_alarm(name: str, precision: str, shapes: str) -> None:
    check(name, precision, shapes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision", "shapes"), [case for case in ALL if case not in USUAL]
)
def test_every_healthy_kind_gives_no_alarm(
    name: str, precision: str, shapes: str
) -> None:
    check(name, precision, shapes)
