"""The choice of versions, the request for consent, and refused versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.wheels import VERSIONS

from shrinkfx.check import environments
from shrinkfx.check.environments import Choice, choose, refuse
from shrinkfx.errors import InstallError, UsageError
from shrinkfx.events import Event, ignore_event

pytestmark = [
    pytest.mark.processes,
    pytest.mark.usefixtures("index", "pip_alone"),
]

HERE = "2.14.1+cu130"


class Consent:
    """Answer each request for consent, and record it."""

    def __init__(self, *, agrees: bool = True) -> None:
        self.agrees = agrees
        self.questions: list[str] = []

    def __call__(self, words: str) -> bool:
        self.questions.append(words)
        return self.agrees


def visited(chosen: Choice, fails: Callable[[str], bool | None]) -> list[str]:
    found: list[str] = []

    def run(version: str) -> bool | None:
        found.append(version)
        return fails(version)

    chosen.visit(run)
    return found


def test_request_lists_missing_versions_and_their_sizes() -> None:
    consent = Consent()
    chosen = choose("2.15.0, 2.13.0,2.14.1", HERE, "", consent, ignore_event)
    assert visited(chosen, lambda _: True) == ["2.13.0", "2.14.1", "2.15.0"]
    assert (chosen.released, chosen.here) == (tuple(VERSIONS), HERE)
    (words,) = consent.questions
    assert words.startswith(
        "shrinkfx needs to install torch 2.13.0, 2.15.0 with pip into "
        f"{environments.home()}: "
    )
    assert "6.1 GB to download and about 11.4 GB on disk" in words
    assert "pip does not report sizes: these are typical of builds with CUDA" in words
    assert words.endswith("GB are free")


def test_version_may_be_written_as_people_and_reports_write_it() -> None:
    chosen = choose("2.13,2.14.1+cpu,2.15.0+cu132", HERE, "", Consent(), ignore_event)
    assert chosen.versions == ("2.13.0", "2.14.1", "2.15.0")
    assert chosen.is_here("2.14.1")


def test_no_request_if_no_version_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consent, told = Consent(), list[Event]()
    chosen = choose("2.13.0,2.14.1", HERE, "", consent, told.append)
    python = chosen.python("2.13.0")
    assert chosen.is_here("2.14.1")
    assert "installing torch 2.13.0 with pip" in str(told)
    again = choose("2.13.0,2.14.1", HERE, "", refuse, ignore_event)
    assert again.python("2.13.0") == python
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")  # and no network
    offline = choose("2.13.0,2.14.1", HERE, "", refuse, ignore_event)
    assert (offline.python("2.13.0"), offline.released) == (python, None)


def test_bisection_ends_at_the_version_of_this_interpreter() -> None:
    consent = Consent()
    chosen = choose("bisect", HERE, "", consent, ignore_event)
    assert chosen.versions == ("2.6.0", "2.13.0", "2.14.0", HERE)
    assert visited(chosen, lambda v: v != "2.6.0")[0] == HERE
    (words,) = consent.questions
    assert "to install about 2 of 3 versions of torch with pip into" in words
    choose(
        "bisect", HERE, "2.13.0", consent, ignore_event
    )  # two boundaries, if it passes
    _, words = consent.questions
    assert "to install torch 2.6.0, 2.13.0, 2.14.0 with pip into" in words


def test_bisection_reaches_the_version_on_which_the_failure_was_seen() -> None:
    chosen = choose("bisect", HERE, "2.15.0", Consent(), ignore_event)
    assert chosen.versions == ("2.6.0", "2.13.0", "2.14.0", HERE, "2.15.0")


def test_nothing_is_installed_without_consent() -> None:
    with pytest.raises(UsageError, match="nothing was installed"):
        choose("2.13.0", HERE, "", Consent(agrees=False), ignore_event)
    with pytest.raises(UsageError, match="to install, add --yes"):
        choose("2.13.0", HERE, "", refuse, ignore_event)
    assert not environments.home().exists()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            "2.14.3",
            "--torch 2.14.3: the package index has no such version. The nearest are "
            "2.14.1 and 2.15.0. For another build, pass its interpreter with --across",
        ),
        ("2.5.1", "2.5.1: the oldest version that can be tested is 2.6.0."),
        ("2.16", "2.16.0: the newest version in the package index is 2.15.0."),
        ("2.8.0", "no wheel for Python 3.*, only for 3.9. Make an environment"),
        (
            "latest",
            "--torch latest: give versions separated by commas, such as 2.13.0,2.14.1,",
        ),
        ("2.13.0,", "give versions separated by commas"),
        ("2.13.0 -r x", "give versions separated by commas"),
        ("../2.13.0", "give versions separated by commas"),
    ],
)
def test_unusable_versions_are_refused(asked: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        choose(asked, HERE, "", Consent(), ignore_event)


def test_too_little_disk_space_is_an_error_before_the_installation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environments, "free_bytes", lambda: 8_600_000_000)
    consent = Consent()
    with pytest.raises(
        InstallError, match=r"8\.6 GB are free. Nothing was changed"
    ) as e:
        choose("2.13.0", HERE, "", consent, ignore_event)
    assert "3.0 GB to download and about 5.7 GB on disk" in str(e.value)
    assert "set XDG_CACHE_HOME to a folder on another disk" in str(e.value)
    assert consent.questions == []
    monkeypatch.setattr(environments, "free_bytes", lambda: 8_800_000_000)
    choose("2.13.0", HERE, "", consent, ignore_event)


def test_unreadable_index_is_an_error_if_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    for asked in ("bisect", "2.13.0"):
        with pytest.raises(
            InstallError, match=r"the package index: pip failed: .*torch"
        ):
            choose(asked, HERE, "", Consent(), ignore_event)
