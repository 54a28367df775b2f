"""A wall around the thread that reads a file: no writes, no programs, no network.

Reading runs nothing that the file says, as far as is known. Should it do so after all,
the kernel refuses that thread what such code would want: Landlock files to write and
programs to start, a seccomp filter sockets and programs. A thread can be walled in
alone, so what the same process does afterwards is as free as ever; and so this keeps
out code that acts at once, not code that changes this process for later.
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
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

Result = TypeVar("Result")

_STACK_BYTES = 64 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)

_PR_SET_SECCOMP, _FILTER = 22, 2
_PR_SET_NO_NEW_PRIVS = 38

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_EXECUTE, _WRITE_FILE, _READ = 1 << 0, 1 << 1, 1 << 2 | 1 << 3
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
"""What can be forbidden below a folder, by Landlock's version: each adds one more."""

_TCP = 1 << 0 | 1 << 1

_AS_EVER = ("/dev/null", "/dev/nvidia*")
"""What reading opens to write: a GPU's driver does, to put weights there."""


def behind_wall(work: Callable[[], Result]) -> Result:
    """Do some work in a thread of its own, with the wall up if the kernel has one."""
    outcome: list[Result] = []
    errors: list[BaseException] = []
    gradients = torch.is_grad_enabled()

    def run() -> None:
        try:
            for missing in _raise_wall():
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


@contextlib.contextmanager
def limited_to(cpu_seconds: float) -> Iterator[None]:
    """End this process, by SIGXCPU, if a block uses more CPU time than that.

    No handler could do it: what never comes back may be a single call of C.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    core, most = resource.getrlimit(resource.RLIMIT_CORE)
    end = math.ceil(time.process_time() + cpu_seconds)
    known = [limit for limit in (soft, hard, end) if limit != resource.RLIM_INFINITY]
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    resource.setrlimit(resource.RLIMIT_CPU, (min(known), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (core, most))


def _raise_wall() -> list[str]:
    """Wall this thread in, for good.

    Returns:
        What the kernel does not have, or does not allow here.
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
    attributes = struct.pack("=QQ", forbidden, _TCP if version >= 4 else 0)
    # An older kernel takes a shorter record.
    size = 16 if version >= 4 else 8
    rules = _LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    if rules < 0:
        return False
    try:
        for pattern in _AS_EVER:
            for path in glob.glob(pattern):
                _allow_writing(rules, path)
        return not _LIBC.syscall(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow_writing(rules: int, path: str) -> None:
    place = os.open(path, os.O_PATH)
    try:
        if os.path.isdir(path):  # a folder of the driver's: nothing is made there
            return
        rule = struct.pack("=Qi", _WRITE_FILE, place)
        _LIBC.syscall(_ADD_RULE, rules, 1, rule, 0)
    finally:
        os.close(place)


_NUMBERS = {
    # machine: what seccomp calls it, then system calls by number
    "x86_64": (0xC000003E, (59, 322, 41, 425, 101, 311, 62)),
    "aarch64": (0xC00000B7, (221, 281, 198, 425, 117, 271, 129)),
}
"""execve, execveat, socket, io_uring_setup, ptrace, process_vm_writev, kill."""

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1
_OTHER_ABI = 0x40000000
"""From here on, x86_64 has the same calls under other numbers."""


def _raise_seccomp() -> bool:
    if platform.machine() not in _NUMBERS:
        return False
    filter_ = _filter(*_NUMBERS[platform.machine()])
    buffer = ctypes.create_string_buffer(filter_, len(filter_))
    program = struct.pack("@HP", len(filter_) // 8, ctypes.addressof(buffer))
    return not _LIBC.prctl(_PR_SET_SECCOMP, _FILTER, program, 0, 0)


def _filter(machine: int, refused: tuple[int, ...]) -> bytes:
    """Write the program that the kernel runs at each system call: BPF."""
    left = len(refused)
    steps = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 0, left + 3, machine),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, left + 1, 0, _OTHER_ABI),
        *((_EQUAL, left - n, 0, number) for n, number in enumerate(refused)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
