"""Environment variables that shrinkfx sets for some kinds of failure."""

from __future__ import annotations

from dataclasses import replace

from shrinkfx.options.options import Options
from shrinkfx.options.values import SHOWN_BY


def with_what_shows_it(options: Options) -> Options:
    """Set the variables that ``until`` needs, unless the user has set them."""
    variables = SHOWN_BY.get(options.until, {})
    return replace(options, environment={**variables, **options.environment})
