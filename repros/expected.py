"""Read the expected failure of a case, ``repros/<case>/expected.toml``.

``torch`` specifies the versions of PyTorch that fail. A table ``[since."2.15"]``
replaces keys from that version on.
"""

import tomllib
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version


def read_expected(case: Path) -> dict[str, Any]:
    """Read the file of a case, for all versions of PyTorch."""
    return tomllib.loads((case / "expected.toml").read_text())


def arguments(case: Path, expected: dict[str, Any]) -> list[str]:
    """Return the options with which shrinkfx reduces a case, without its inputs."""
    words = ["--until", expected["kind"], *expected["options"]]
    if expected["device"] == "cuda":
        words += ["--device", "cuda", "--backend", "interpreter"]
    return words + preloading(case, expected)


def preloading(case: Path, expected: dict[str, Any]) -> list[str]:
    """Return the options that load the planted fault of a case, if it has one."""
    preload = expected["preload"]
    return ["--preload", str(case / preload)] if preload else []


def fails_with(expected: dict[str, Any], torch: str) -> bool:
    """Return whether the case is expected to fail with a version of PyTorch."""
    return SpecifierSet(expected["torch"]).contains(torch, prereleases=True)


def with_torch(expected: dict[str, Any], torch: str) -> dict[str, Any]:
    """Return the failure that is expected with a version of PyTorch."""
    since = expected.get("since", {})
    found = {key: value for key, value in expected.items() if key != "since"}
    for version in sorted(since, key=Version):
        if Version(torch) >= Version(version):
            found |= since[version]
    return found
