"""A sandbox for the thread that reads a file: no writes, no programs, no network.

As far as is known, reading executes no code from the file. In case it does, the kernel
denies that thread what such code would need. Landlock denies writing files and starting
programs. A seccomp filter denies sockets, programs, signals to other processes, timers
and signal handlers that would act later, and changes to the metadata of files.

A single thread can be sandboxed, so the process is not restricted afterwards. So the
sandbox stops code that acts at once, but not code that changes this process for later.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import math
import os
import platform
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

from shrinkfx.worker.private_api.graph_api import FakeTensorMode

Result = TypeVar("Result")

_STACK_BYTES = 64 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)

_PR_SET_SECCOMP, _FILTER = 22, 2
_PR_SET_NO_NEW_PRIVS = 38

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_EXECUTE, _WRITE_FILE, _READ = 1 << 0, 1 << 1, 1 << 2 | 1 << 3
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
"""The rights to deny, by the version of Landlock, each of which adds one."""

_TCP = 1 << 0 | 1 << 1
_SCOPES = 1 << 0 | 1 << 1
"""Deny abstract Unix sockets and signals outside the sandbox."""

_WRITABLE = ("/dev/null", "/dev/nvidia*")
"""Files that reading opens for writing; a GPU's driver does so to place weights."""


def run_sandboxed(work: Callable[[], Result]) -> Result:
    """Run work in a new thread, with the parts of the sandbox that the kernel has."""
    _create_gpu_stand_in()
    outcome: list[Result] = []
    errors: list[BaseException] = []
    gradients = torch.is_grad_enabled()

    def run() -> None:
        try:
            for missing in _sandbox_thread():
                print(f"shrinkfx: reading without {missing}", flush=True)
            with torch.set_grad_enabled(gradients):
                outcome.append(work())
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            errors.append(error)

    before = threading.stack_size(_STACK_BYTES)
    try:
        thread = threading.Thread(target=run, name="reading")
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return outcome[0]


def _create_gpu_stand_in() -> None:
    """Let this thread, and not the reading thread, create the stand-in for a GPU.

    Without a GPU, a torch for CUDA creates a stand-in when fake tensors are first used.
    In torch 2.11 it ends with the thread that created it, and later uses in other
    threads die of SIGSEGV.
    """
    with FakeTensorMode():
        pass


@contextlib.contextmanager
def limit_cpu_time(cpu_seconds: float) -> Iterator[None]:
    """End this process by SIGXCPU if the block uses more CPU time.

    A signal handler could not do it, because Python runs none during a single C call.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    core_soft, core_hard = resource.getrlimit(resource.RLIMIT_CORE)
    end = math.ceil(time.process_time() + cpu_seconds)
    finite = [limit for limit in (soft, hard, end) if limit != resource.RLIM_INFINITY]
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, core_hard))
    resource.setrlimit(resource.RLIMIT_CPU, (min(finite), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (core_soft, core_hard))


@contextlib.contextmanager
def limit_memory(most: int) -> Iterator[None]:
    """Let allocations fail in the block if they add more than that many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = (soft, hard, _data_bytes() + most)
    finite = [limit for limit in limits if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(finite), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int:
    """Return the data size of this process, in bytes, which the limit is added to."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[5]) * resource.getpagesize()


def _sandbox_thread() -> list[str]:
    """Sandbox this thread permanently.

    Returns:
        The parts that the kernel does not have, or does not allow here.
    """
    if sys.platform != "linux" or _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return ["Landlock and seccomp"]
    raised = {"Landlock": _raise_landlock(), "seccomp": _raise_seccomp()}
    return [name for name, done in raised.items() if not done]


def _raise_landlock() -> bool:
    version = _LIBC.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if version < 1:
        return False
    forbidden = _RIGHTS[min(version, max(_RIGHTS))] & ~_READ
    attributes = struct.pack("=QQQ", forbidden, _TCP if version >= 4 else 0, _SCOPES)
    # An older kernel takes a shorter struct.
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = _LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    if rules < 0:
        return False
    try:
        for pattern in _WRITABLE:
            for path in glob.glob(pattern):
                _allow_writing(rules, path)
        return not _LIBC.syscall(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow_writing(rules: int, path: str) -> None:
    fd = os.open(path, os.O_PATH)
    try:
        if os.path.isdir(path):  # a folder of the driver; no file is created there
            return
        rule = struct.pack("=Qi", _WRITE_FILE, fd)
        _LIBC.syscall(_ADD_RULE, rules, 1, rule, 0)
    finally:
        os.close(fd)


_REFUSED = {
    # name: its number on x86_64 and on aarch64; None if there is no such call
    "execve": (59, 221),
    "execveat": (322, 281),
    "socket": (41, 198),
    "io_uring_setup": (425, 425),
    "ptrace": (101, 117),
    "process_vm_writev": (311, 271),
    "kill": (62, 129),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "rt_sigaction": (13, 134),
    "alarm": (37, None),
    "setitimer": (38, 103),
    "timer_create": (222, 107),
    "timerfd_create": (283, 85),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
}
_SELF_ONLY = {"tkill": (200, 130), "tgkill": (234, 131), "prlimit64": (302, 261)}
"""Calls whose first argument is a process, which must be this one (for abort)."""

_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The architecture's code in seccomp, and its column in the tables above."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1
_OTHER_ABI = 0x40000000
"""From this number on, x86_64 has the same calls under other numbers."""

_MACHINE_AT, _NUMBER_AT, _FIRST_ARGUMENT_AT = 4, 0, 16


def _raise_seccomp() -> bool:
    if platform.machine() not in _MACHINES:
        return False
    machine, column = _MACHINES[platform.machine()]
    refused = [numbers[column] for numbers in _REFUSED.values()]
    local = [numbers[column] for numbers in _SELF_ONLY.values()]
    filter_ = _filter(machine, [n for n in refused if n is not None], local)
    buffer = ctypes.create_string_buffer(filter_, len(filter_))
    program = struct.pack("@HP", len(filter_) // 8, ctypes.addressof(buffer))
    return not _LIBC.prctl(_PR_SET_SECCOMP, _FILTER, program, 0, 0)


def _filter(machine: int, refused: Sequence[int], local: Sequence[int]) -> bytes:
    """Return the BPF program that the kernel runs at each system call.

    A jump has the number of steps to skip if its condition is true, and if it is false.
    """
    this = (os.getpid(), threading.get_native_id(), 0)
    # After the list: allow, refuse, then the check of the first argument.
    checks = len(refused) + len(local)
    steps = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_EQUAL, 0, checks + 3, machine),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, checks + 1, 0, _OTHER_ABI),
        *((_EQUAL, checks - n, 0, number) for n, number in enumerate(refused)),
        *((_EQUAL, len(local) - n + 1, 0, number) for n, number in enumerate(local)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        *((_EQUAL, len(this) - n, 0, number) for n, number in enumerate(this)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
