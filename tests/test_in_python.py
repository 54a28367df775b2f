"""What minify() raises says what to do next as its caller would write it."""

from __future__ import annotations

import pytest

from shrinkfx.api.in_python import in_python, with_keywords
from shrinkfx.errors import NotReproducible


@pytest.mark.parametrize(
    ("typed", "written"),
    [
        ("a silent memory error? --until ima", "a silent memory error? until='ima'"),
        ("lowerings? --preload FILE", "lowerings? preload=FILE"),
        ("--baseline-runs 1000", "baseline_runs=1000"),
        ("give it more with --max-minutes", "give it more with max_minutes=..."),
        ("another kind (--arch) is", "another kind (arch=...) is"),
        ("--env KEY=VALUE", "environment={'KEY': 'VALUE'}"),
        ("--inductor-config nan_asserts=True", "inductor={'nan_asserts': 'True'}"),
        ("other sizes? --dynamic-sweep", "other sizes? on the command line --dynamic-"),
        ("--until check-inputs; x--y", "until='check-inputs'; x--y"),
    ],
)
def test_options_are_written_as_keywords(typed: str, written: str) -> None:
    assert with_keywords(typed).startswith(written)


def test_error_of_a_call_names_keywords_and_keeps_what_was_seen() -> None:
    with pytest.raises(NotReproducible) as told, in_python():
        raise NotReproducible("any", 3, ["passes"], "passes of its own? --preload FILE")
    assert "preload=FILE" in str(told.value)
    assert "--" not in str(told.value)
    assert told.value.seen == ["passes"]
