"""What a run is asked for, beside what the user has said."""

from __future__ import annotations

from dataclasses import replace

from shrinkfx.options.options import Options
from shrinkfx.options.values import SHOWN_BY


def with_what_shows_it(options: Options) -> Options:
    """Set the variables that the kind of failure needs; the user's own go first."""
    variables = SHOWN_BY.get(options.until, {})
    return replace(options, environment={**variables, **options.environment})
