"""The version of shrinkfx, and the versions of PyTorch with which it runs."""

import re

__version__ = "0.1.0"

# The versions of PyTorch are defined only here: tests compare pyproject.toml and the
# docs with them.

OLDEST = "2.11"
"""The oldest version; the tests of CUDA programs without a GPU run with it."""

TESTED = ("2.13", "2.14", "2.15")
"""The supported minor versions, in order (docs/versions.md)."""

RANGE = f"{TESTED[0]} to {TESTED[-1]}"


def why_too_old(version: str) -> str:
    """Return why shrinkfx cannot run with a version, or ''."""
    if _minor(version) and _minor(version) < _minor(OLDEST):
        return f"torch {version} is older than {OLDEST}, the oldest version that works"
    return ""


def why_untested(version: str) -> str:
    """Return a warning about a version that shrinkfx is not tested with, or ''."""
    if _minor(version) in ((), *map(_minor, (OLDEST, *TESTED))):
        return ""
    return (
        f"shrinkfx is tested with torch {RANGE}, not with {version}. If something "
        "fails, run shrinkfx doctor."
    )


def how_tested(version: str) -> str:
    """Describe in a few words whether a version is tested."""
    minor = ".".join(map(str, _minor(version)))
    if minor in TESTED:
        return "tested"
    if minor == OLDEST:
        return f"tested with CUDA programs only; other programs: {RANGE}"
    return f"not tested; tested: {RANGE}"


def _minor(version: str) -> tuple[int, ...]:
    """Return the major and minor number; () if the text has none.

    >>> _minor("2.17.0.dev20261101+cpu"), _minor("unknown")
    ((2, 17), ())
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, match.groups())) if match else ()
