"""Run the commands of a triage on the nodes of a Ray cluster.

Ray schedules them, and runs one again if its node or process has died; the command then
resumes its run. Programs and results are in folders that all nodes share.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from shrinkfx.campaign.commands import TOOL, Command, Stopped, wait_for
from shrinkfx.errors import UsageError

_CORES = 2
"""Cores of each program: one for the check, one for its server and compiler."""

_MEMORY, _COPIES = 4 << 30, 4
"""Bytes of memory of each program, and how often the file of the program adds to it."""

_LOG = logging.getLogger(__name__)

_ON_CUDA = frozenset(("cuda", "--device=cuda"))

_CONNECT_S, _LOOK_S = 10.0, 5.0
_CHECKED = "torch", "triton", "shrinkfx"
"""Packages whose versions must be the same on all nodes."""


class RayExecutor:
    """Runs commands on the nodes of a Ray cluster.

    It does not use a node whose versions differ from those of this machine, or that
    lacks the folders of the triage or a C++ compiler.

    Args:
        address: as for ``ray.init``: ``auto``, or the host and port of the head node.
        tool: the command that runs shrinkfx; None for that of the node's Python.

    Attributes:
        jobs: the number of programs that the nodes can run at a time.

    Raises:
        UsageError: Ray is not installed, or there is no cluster at this address.
    """

    def __init__(self, address: str, tool: Sequence[str] | None = None) -> None:
        self._ray, self._tool = _connect(address), tool
        self._lock = threading.Lock()
        self._unfit: dict[str, str] = {}
        self._running: set[Any] = set()
        self._is_stopped = False
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        cores = [int(node.get("CPU", 0)) for node in nodes]
        self._cores = min(_CORES, max(cores))
        if not self._cores:
            raise UsageError(f"--ray {address}: no node of the cluster has a CPU")
        self._memory = max(int(node.get("memory", 0)) for node in nodes)
        self.jobs = sum(count // self._cores for count in cores)
        self._has_gpus = any(node.get("GPU") for node in nodes)
        self._task = self._ray.remote(_run_on_node)

    def run(self, command: Command) -> tuple[int, str]:
        size, versions = os.path.getsize(command.words[0]), _versions()
        needs = {
            "num_cpus": self._cores,
            "num_gpus": int(self._has_gpus and not _ON_CUDA.isdisjoint(command.words)),
            "memory": min(_MEMORY + _COPIES * size, self._memory),
        }
        while True:
            on_node = self._task.options(label_selector=self._fit_nodes(), **needs)
            with self._lock:
                if self._is_stopped:
                    raise Stopped
                running = on_node.remote(command, self._tool, versions)
                self._running.add(running)
            try:
                answer = self._wait_for(running)
            except self._ray.exceptions.RayError as error:
                raise OSError(f"Ray could not run it: {error}") from error
            finally:
                self._running.discard(running)
            if not isinstance(answer, _Unfit):
                return answer
            self._leave_out(answer)

    def _wait_for(self, running: Any) -> tuple[int, str] | _Unfit:  # noqa: ANN401
        while not self._ray.wait([running], timeout=_LOOK_S)[0]:
            try:
                self._fit_nodes()
            except OSError:  # the last fit node has died
                self._ray.cancel(running)
                raise
        return self._ray.get(running)  # type: ignore[no-any-return]

    def _fit_nodes(self) -> dict[str, str]:
        """Return labels of the nodes that may run a command.

        Raises:
            OSError: there is none.
        """
        unfit = dict(self._unfit)
        if not unfit:
            return {}
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        if alive <= unfit.keys():
            raise OSError(f"no node can run it: {'; '.join({*unfit.values()})}")
        return {"ray.io/node-id": f"!in({','.join(unfit)})"}

    def _leave_out(self, node: _Unfit) -> None:
        with self._lock:
            is_new = node.node not in self._unfit
            self._unfit[node.node] = node.reason
        if is_new:
            _LOG.warning("the node %s is not used: %s", node.host, node.reason)

    def stop(self) -> None:
        """Kill all commands; ``--resume`` continues them."""
        with self._lock:
            self._is_stopped = True
            for running in self._running:
                self._ray.cancel(running)


def _connect(address: str) -> Any:  # noqa: ANN401 - a module
    """Connect to a cluster, and return the module of Ray."""
    try:
        import ray.exceptions
    except ImportError as error:
        advice = "Ray is not installed: pip install 'shrinkfx[ray]'"
        raise UsageError(f"--ray {address}: {advice}") from error
    try:
        host, _, port = address.rpartition("://")[2].rpartition(":")
        if host and port.isdecimal():  # Ray itself would try for minutes
            socket.create_connection((host, int(port)), _CONNECT_S).close()
        ray.init(
            address,
            ignore_reinit_error=True,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (OSError, RuntimeError, ValueError) as error:
        where = "on this machine" if address == "auto" else f"there ({error})"
        advice = "to start one: ray start --head"
        raise UsageError(f"--ray {address}: no cluster {where}; {advice}") from error
    return ray


@dataclass(frozen=True)
class _Unfit:
    """The reason why a node cannot run a command."""

    node: str
    host: str
    reason: str


def _versions() -> dict[str, str]:
    found = {"Python": ".".join(map(str, sys.version_info[:3]))}
    for name in _CHECKED:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _run_on_node(
    command: Command, tool: Sequence[str] | None, expected: Mapping[str, str]
) -> tuple[int, str] | _Unfit:
    """Run a command on this node of the cluster, if it can."""
    import ray

    if reason := _why_unfit(command, expected):
        node = ray.get_runtime_context().get_node_id()
        return _Unfit(node, socket.gethostname(), reason)
    os.environ.pop("OMP_NUM_THREADS", None)  # Ray's; it could change the failure
    return wait_for(command.start(tool or TOOL))


def _why_unfit(command: Command, expected: Mapping[str, str]) -> str:
    """Return why this node cannot run a command, or ''."""
    here = _versions()
    for name, version in expected.items():
        if here.get(name) != version:
            return f"it has {name} {here.get(name)}, not {version}"
    folders = command.log.parent, Path(command.words[0]), Path(command.cwd)
    if missing := [each for each in folders if not each.exists()]:
        return f"it does not have {missing[0]}: share this folder between all nodes"
    if not (os.environ.get("CXX") or shutil.which("g++")):
        return "it has no C++ compiler (g++)"
    return ""
