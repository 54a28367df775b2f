"""What tests share: Hypothesis' settings, and a mark for real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from support.planting import Field

pytest_plugins = ["support.without_torch", "support.wheels"]

# A busy machine is slow, and what is red here must be red everywhere.
settings.register_profile(
    "shrinkfx",
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "quick", parent=settings.get_profile("shrinkfx"), max_examples=10
)
"""Of ``make quick``: the same laws, held by fewer examples."""
settings.load_profile("shrinkfx")

# A shell that starts tests in the background has SIGINT ignored, and everything
# below it as well: then no Ctrl-C would reach what is tested with one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_NAME = "SHRINKFX_TEST"


@pytest.fixture(scope="session")
def processes_with() -> Callable[[str], list[int]]:
    """Find processes by a variable of their environment, however far they ran."""

    def found(variable: str) -> list[int]:
        needle = variable.encode()
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        return sorted(pid for pid in pids if needle in _environ(pid))

    return found


@pytest.fixture
def marked(
    monkeypatch: pytest.MonkeyPatch, processes_with: Callable[[str], list[int]]
) -> Iterator[Callable[[], list[int]]]:
    """List the processes that the test has started and that still live."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(_NAME, value)

    def found() -> list[int]:
        return processes_with(f"{_NAME}={value}")

    yield found
    for pid in found():  # a failed test leaves no process behind either
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def survivors(marked: Callable[[], list[int]]) -> Callable[[], list[str]]:
    """Name the processes that are left 30 s from now: none, if all is well."""

    def left() -> list[str]:
        deadline = time.monotonic() + 30
        while (pids := marked()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return [f"{pid} {_command(pid)}" for pid in pids]

    return left


@pytest.fixture(scope="session")
def wait_for() -> Callable[[Callable[[], object]], None]:
    """Poll a condition for as long as a noisy machine may need."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, "waited 120 s in vain"
            time.sleep(0.01)

    return wait


@pytest.fixture
def install_tool(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str, str], Path]:
    """Put an executable script of a given name first on the search path."""

    def install(name: str, text: str) -> Path:
        tool = tmp_path / name
        tool.write_text(text)
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tool

    return install


@pytest.fixture(scope="session")
def vices() -> Path:
    """A server without torch, whose children do what its file lists."""
    return Path(__file__).parent / "support" / "vices.py"


@pytest.fixture(scope="session")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    """One server for all planted failures: it costs five seconds to start."""
    from support.haystack import save_haystack
    from support.planting import Field

    model = save_haystack(tmp_path_factory.mktemp("planted") / "model.pt2")
    with contextlib.closing(Field(model)) as field:
        yield field


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""
