"""Start a fork server, ask it, and leave no process behind."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from shrinkfx.errors import LoadError, WorkerError
from shrinkfx.program.messages import Ending, Ready, Request, Setup

_GRACE_S = 30.0
_MARK = "SHRINKFX_SERVER"
_WORKER = (sys.executable, "-m", "shrinkfx.worker.main")


class Server:
    """The worker's process: loads once, forks a child per request.

    Use it as a context manager; leaving it kills whatever it started. All that
    it writes lies in ``directory``, which goes with it.
    """

    def __init__(
        self,
        *,
        model: Path | None = None,
        inputs: Path | None = None,
        preloads: Sequence[str] = (),
        device: str | None = None,
        inductor: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = _WORKER,
        start_timeout_s: float = 600.0,
    ) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="shrinkfx-"))
        self._mark = uuid.uuid4().hex
        self._buffer = b""
        setup = Setup(
            directory=str(self.directory),
            model=str(model) if model else None,
            inputs=str(inputs) if inputs else None,
            preloads=tuple(preloads),
            device=device,
            inductor=dict(inductor or {}),
        )
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(environment or {}, self._mark),
            start_new_session=True,
        )
        try:
            self._write(setup.to_line())
            self.ready = Ready.from_line(self._read(start_timeout_s, "loading"))
        except BaseException:
            self.close()
            raise
        if self.ready.error:
            self.close()
            raise LoadError(self.ready.subject, self.ready.error, self.ready.advice)

    def ask(self, request: Request) -> Ending:
        """Send a request and wait for its end.

        Raises:
            WorkerError: the server itself died or stopped answering.
            KeyboardInterrupt: after the child has been ended.
        """
        self._write(request.to_line())
        patience = request.timeout_s + _GRACE_S
        try:
            return Ending.from_line(self._read(patience, request.task))
        except KeyboardInterrupt:
            self._write('"cancel"\n')
            self._read(_GRACE_S, "cancelling")
            raise

    def close(self) -> None:
        """End the server and all that it started; safe to call twice."""
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        _kill_marked(self._mark)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def log(self) -> str:
        """The end of what the server itself has written."""
        try:
            return (self.directory / "server.log").read_text(errors="replace")[-4000:]
        except OSError:
            return ""

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._how_it_died("before a request"), self.log) from None

    def _read(self, timeout_s: float, doing: str) -> str:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([descriptor], [], [], left)[0]
            if not ready:
                reason = f"the worker did not answer in {timeout_s:.0f} s ({doing})"
                raise WorkerError(reason, self.log)
            data = os.read(descriptor, 1 << 16)
            if not data:
                raise WorkerError(self._how_it_died(doing), self.log)
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def _how_it_died(self, doing: str) -> str:
        try:
            status = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return f"the worker closed its end while {doing}"
        how = f"status {status}" if status >= 0 else signal.Signals(-status).name
        return f"the worker died with {how} while {doing}"


def _environment(extra: Mapping[str, str], mark: str) -> dict[str, str]:
    """Set what must be there when the worker's process starts.

    Without PYTHONUNBUFFERED a crash loses what the compiled code printed; the
    compile pool would leave processes behind; NVML tells whether there is a
    GPU without creating a context.
    """
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    fixed = {
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        _MARK: mark,
    }
    return {**os.environ, **fixed, **extra}


def _kill_marked(mark: str) -> None:
    """Kill what carries the server's mark: left over only if the server died."""
    needle = f"{_MARK}={mark}".encode()
    for _ in range(5):
        found = [pid for pid in _pids() if needle in _environ(pid)]
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
