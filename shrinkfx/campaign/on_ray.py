"""Run the commands of a triage on the nodes of a Ray cluster.

Ray schedules them, and runs one again if its node or process has died; the command then
resumes its run. Programs and results are in folders that all nodes share.
"""

from __future__ import annotations

import logging
import os
import platform
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from importlib import metadata
from itertools import pairwise
from os.path import isdir
from pathlib import Path
from shutil import which
from typing import Any

from shrinkfx.campaign.commands import TOOL, Command, Stopped, wait_for
from shrinkfx.campaign.programs import size_of
from shrinkfx.errors import UsageError, WorkerError
from shrinkfx.program.display_text import first_line

_CORES = 2
"""Cores of each program: one for the check, one for its server and compiler."""

_BASE_BYTES, _FILE_COPIES = 4 << 30, 4
"""Each program reserves these bytes of memory, plus this many times its file's size."""

_PACKAGES = "torch", "triton", "shrinkfx"
"""Their versions must be the same on all nodes."""

_CONNECT_S, _PROBE_S, _POLL_S, _ENDING_S = 10.0, 60.0, 5.0, 10.0

_THREADS = "OMP_NUM_THREADS"

_LOG = logging.getLogger(__name__)

Needs = Mapping[str, int]
"""The resources of a program, by Ray's names for those of a node."""

Probed = tuple[dict[str, str], list[str], bool]
"""The versions of a node, the folders that it lacks, and whether it has a compiler."""


class RayExecutor:
    """Runs commands on the nodes of a Ray cluster.

    It does not use a node whose versions differ from those of this machine, or that
    lacks the folders of the triage or a C++ compiler.

    Args:
        address: as for ``ray.init``: ``auto``, or the host and port of the head node.
        tool: the command that runs shrinkfx; None for the shrinkfx of the node's
            Python.

    Attributes:
        jobs: the number of programs that the nodes can run at a time.

    Raises:
        UsageError: Ray is not installed, or no cluster can be connected to.
    """

    def __init__(self, address: str, tool: Sequence[str] | None = None) -> None:
        self._ray, self._tool = _connect(address), tool
        self._lock, self._probing = threading.Lock(), threading.Lock()
        self._reasons: dict[str, str] = {}  # why a node is not used, or ''
        self._running: set[Any] = set()
        self._is_stopped = False
        nodes = [resources for _, _, resources in self._list_nodes()]
        self._cores = min(_CORES, max(int(each.get("CPU", 0)) for each in nodes))
        self._memory = max(int(each.get("memory", 0)) for each in nodes)
        if not self._cores:
            raise UsageError(f"--ray {address}: no node of the cluster has a CPU")
        self._has_gpus = any("GPU" in each for each in nodes)
        each_needs = {"CPU": self._cores, "memory": min(_BASE_BYTES, self._memory)}
        self.jobs = sum(
            int(min(node.get(name, 0) // n for name, n in each_needs.items()))
            for node in nodes
        )
        self._task = self._ray.remote(_run_on_node)

    def _list_nodes(self) -> list[tuple[str, str, Mapping[str, float]]]:
        """List the living nodes: identifier, host name, and resources."""
        nodes = (node for node in self._ray.nodes() if node["Alive"])
        return [(n["NodeID"], n["NodeManagerHostname"], n["Resources"]) for n in nodes]

    def run(self, command: Command) -> tuple[int, str]:
        """Run a command, as ``Executor.run`` does.

        Raises:
            OSError: the command has killed its process on the nodes.
            WorkerError: no node can run it, or the cluster has failed.
        """
        size = _FILE_COPIES * size_of(Path(command.words[0]))
        needs = {"CPU": self._cores, "memory": min(_BASE_BYTES + size, self._memory)}
        devices = _values_of("--device", command.words)
        if self._has_gpus and any(device.startswith("cuda") for device in devices):
            needs["GPU"] = 1
        errors = self._ray.exceptions
        answer: tuple[int, str] | None = None
        try:
            while answer is None:
                answer = self._run_on(self._find_nodes(command, needs), command, needs)
        except errors.RayTaskError as error:
            raise OSError(str(error.cause)) from error
        except (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
        ) as error:
            reason = f"its process on a node died several times: {error}"
            raise OSError(reason) from error
        except errors.RayError as error:
            raise WorkerError(f"the Ray cluster has failed: {error}") from error
        return answer

    def _run_on(
        self, nodes: Collection[str], command: Command, needs: Needs
    ) -> tuple[int, str] | None:
        """Run a command on one of these nodes; None if all have died before."""
        task = self._task.options(
            num_cpus=needs["CPU"],
            num_gpus=needs.get("GPU", 0),
            memory=needs["memory"],
            label_selector={"ray.io/node-id": f"in({','.join(nodes)})"},
        )
        threads = os.environ.get(_THREADS)
        with self._lock:
            if self._is_stopped:
                raise Stopped
            running = task.remote(command, self._tool, threads)
            self._running.add(running)
        try:
            while not self._ray.wait([running], timeout=_POLL_S)[0]:
                if not {node for node, *_ in self._list_nodes()} & {*nodes}:
                    self._ray.cancel(running)
                    return None
            return self._ray.get(running)  # type: ignore[no-any-return]
        finally:
            with self._lock:
                self._running.discard(running)

    def _find_nodes(self, command: Command, needs: Needs) -> list[str]:
        """Return the nodes that can run a command.

        Raises:
            WorkerError: there is none.
        """
        nodes = self._list_nodes()
        with self._probing:
            for node, host, _ in nodes:
                if node not in self._reasons:
                    reason = self._reasons[node] = self._why_unfit(node, command)
                    if reason:
                        _LOG.warning("node %s is not used: %s", host, reason)
            reasons = dict(self._reasons)
        able = [
            node
            for node, _, resources in nodes
            if not reasons[node]
            and all(resources.get(name, 0) >= needs[name] for name in needs)
        ]
        if not able:
            known = sorted({reasons[node] for node, *_ in nodes} - {""})
            why = "; ".join(known) or "none has the CPUs, memory and GPU that one needs"
            raise WorkerError(f"no node of the Ray cluster can run the programs: {why}")
        return able

    def _why_unfit(self, node: str, command: Command) -> str:
        """Return why a node cannot run commands, or ''."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(node, soft=False)
        probe = self._ray.remote(_probe).options(
            num_cpus=0, max_retries=0, scheduling_strategy=here
        )
        folders = command.log.parent, command.cwd, *_values_of("--known", command.words)
        try:
            found = probe.remote(_PACKAGES, [*map(str, folders)])
            versions, missing, has_compiler = self._ray.get(found, timeout=_PROBE_S)
        except self._ray.exceptions.RayError as error:
            return f"the node does not answer: {first_line(str(error))}"
        for name, version in find_versions(_PACKAGES).items():
            if versions[name] != version:
                return f"the node has {name} {versions[name]}, not {version}"
        if missing:
            return f"the node does not have the folder {missing[0]}"
        return "" if has_compiler else "the node has no C++ compiler (g++)"

    def stop(self) -> None:
        """Kill all commands; ``--resume`` continues them."""
        with self._lock:
            self._is_stopped = True
            running = [*self._running]
        for each in running:
            self._ray.cancel(each)


def _values_of(option: str, words: Sequence[str]) -> list[str]:
    """Return the values of an option: as the next word, or after an equals sign."""
    joined = (word.partition("=") for word in words)
    after = [value for name, _, value in joined if name == option and value]
    return [*after, *(value for name, value in pairwise(words) if name == option)]


def _connect(address: str) -> Any:  # noqa: ANN401 - a module
    """Connect to a cluster, and return the module of Ray."""
    try:
        import ray.exceptions
    except ImportError as error:
        advice = "Ray is not installed: pip install 'shrinkfx[ray]'"
        raise UsageError(f"--ray {address}: {advice}") from error
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
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
    except ConnectionError as error:
        where = "on this machine" if address == "auto" else f"there ({error})"
        advice = "to start one: ray start --head"
        raise UsageError(f"--ray {address}: no cluster {where}; {advice}") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"--ray {address}: cannot connect: {error}") from error
    finally:
        if is_main:  # Ray replaces it
            signal.signal(signal.SIGTERM, before)
    # A node that is probed may lack shrinkfx.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return ray


def find_versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of Python and of packages."""
    versions = {"Python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "(none)"
    return versions


def _probe(packages: Sequence[str], folders: Sequence[str]) -> Probed:
    versions, missing = find_versions(packages), [f for f in folders if not isdir(f)]
    return versions, missing, bool(os.environ.get("CXX") or which("g++"))


def _run_on_node(
    command: Command, tool: Sequence[str] | None, threads: str | None
) -> tuple[int, str]:
    """Run a command on this node of the cluster.

    Args:
        threads: the ``OMP_NUM_THREADS`` of the machine that has started the triage; Ray
            sets another one, which could change the failure.
    """
    os.environ.pop(_THREADS, None)
    if threads is not None:
        os.environ[_THREADS] = threads
    code, printed = wait_for(command.start(tool or TOOL))
    if code == -signal.SIGKILL:
        # If this process is about to end, Ray kills its children first. Such a command
        # has no result, and Ray runs it again.
        time.sleep(_ENDING_S)
    return code, printed
