"""Environment variables that shrinkfx sets for some kinds of failure."""

from __future__ import annotations

from dataclasses import replace

from shrinkfx.options.options import Options
from shrinkfx.options.values import REQUIRED_VARIABLES


def add_required_variables(options: Options) -> Options:
    """Set the variables that ``until`` needs, unless the user has set them."""
    variables = REQUIRED_VARIABLES.get(options.until, {})
    return replace(options, environment={**variables, **options.environment})
