"""What a run is asked for, beside what the user has said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shrinkfx.failure.signature import Kind
from shrinkfx.options.options import Options

SHOWN_BY: Mapping[str | None, Mapping[str, str]] = {
    Kind.CHECK_INPUTS: {"AOTI_RUNTIME_CHECK_INPUTS": "1"}
}
"""Variables without which a kind of failure never shows."""


def with_what_shows_it(options: Options) -> Options:
    """Set the variables that the kind of failure needs; the user's own go first."""
    variables = SHOWN_BY.get(options.until, {})
    return replace(options, environment={**variables, **options.environment})
