"""The allocator alone: a bare Python that calls the C library, without torch."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from platform import machine

import pytest

from shrinkfx.protocol.choices import Guard
from shrinkfx.worker import native
from shrinkfx.worker.cpu_memory import guard_pages

pytestmark = pytest.mark.processes

PRELUDE = """
import ctypes, os, resource, sys
c = ctypes.CDLL(None)
c.free.argtypes = [ctypes.c_void_p]
c.malloc.restype = c.realloc.restype = ctypes.c_void_p
c.malloc.argtypes = [ctypes.c_size_t]
c.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
c.malloc_usable_size.restype = ctypes.c_size_t
c.malloc_usable_size.argtypes = [ctypes.c_void_p]

def tensor(size, alignment=64):
    block = ctypes.c_void_p()
    error = c.posix_memalign(ctypes.byref(block), alignment, ctypes.c_size_t(size))
    assert error == 0, error
    return block.value

def bytes_of(block, size):
    return (ctypes.c_ubyte * size).from_address(block)

def resident_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
"""


@pytest.fixture(name="library", scope="module")
def _library() -> str:
    return str(guard_pages.build())


def python(
    library: str,
    code: str,
    side: str = Guard.AFTER,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run Python with guard pages from its start."""
    anyone = {"SHRINKFX_GUARD_CALLER": ""}
    own = {**os.environ, **anyone, **(environment or {})}
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        env=guard_pages.guarded_environment(own, library, side),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def works(*arguments: object, **named: object) -> None:
    done = python(*arguments, **named)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("size", [1, 3, 100, 4096, 4097, 1_000_003])
@pytest.mark.parametrize("write", ["", " = 7"], ids=["read", "write"])
def test_access_one_byte_past_the_end_faults(
    library: str, size: int, write: str
) -> None:
    code = f"a = bytes_of(tensor({size}), {size + 1})\na[{size - 1}] = 1\na[{size}]"
    done = python(library, code + write)
    assert done.returncode == -signal.SIGSEGV
    # Only x86 tells reading from writing.
    access = ("write" if write else "read") if machine() == "x86_64" else "access"
    said = (
        f"illegal memory access: {access} just past the end of a tensor of {size} bytes"
    )
    assert said in done.stderr


@pytest.mark.parametrize("asks", [True, False])
def test_out_of_bounds_code_address_is_reported_if_requested(
    library: str, asks: bool
) -> None:
    """``strlen`` reads from an address that is no tensor's."""
    ask = "c.shrinkfx_tell_code()" if asks else ""
    done = python(library, f"{ask}\nc.shrinkfx_guard(1)\nc.strlen(ctypes.c_void_p(8))")
    assert done.returncode == -signal.SIGSEGV
    assert (
        bool(re.search(r"^guard pages: by the code at \d{6,}$", done.stderr, re.M))
        == asks
    )


@pytest.mark.parametrize("size", [1, 100, 4096, 1_000_003])
def test_access_one_byte_before_the_start_faults(library: str, size: int) -> None:
    code = f"block = tensor({size})\nbytes_of(block, 1)[0]\nbytes_of(block - 1, 1)[0]"
    done = python(library, code, Guard.BEFORE)
    assert done.returncode == -signal.SIGSEGV
    assert f"1 byte before the start of a tensor of {size} bytes" in done.stderr


def test_far_overrun_faults(library: str) -> None:
    code = "a, b = tensor(1 << 20), tensor(64)\nbytes_of(a + (3 << 19), 1)[0]"
    done = python(library, code)
    assert done.returncode == -signal.SIGSEGV
    assert "524288 bytes past the end of a tensor of 1048576 bytes" in done.stderr


@pytest.mark.parametrize("side", [Guard.AFTER, Guard.BEFORE])
def test_guarded_memory_is_poisoned_and_usable(library: str, side: Guard) -> None:
    code = """
for size in (1, 64, 5000, 1 << 20):
    block = tensor(size)
    assert bytes(bytes_of(block, size)) == b"\\xff" * size
    ctypes.memset(block, 7, size)
    assert bytes(bytes_of(block, size)) == b"\\7" * size
    c.free(block)
"""
    works(library, code, side)


@pytest.mark.parametrize(
    ("side", "offset", "said"),
    [(Guard.AFTER, -1, "before the start"), (Guard.BEFORE, 100, "past the end")],
)
def test_write_on_the_unguarded_side_aborts_on_free(
    library: str, side: Guard, offset: int, said: str
) -> None:
    code = f"a = tensor(100)\nbytes_of(a + {offset}, 1)[0] = 1\nc.free(a)"
    done = python(library, code, side)
    assert done.returncode == -signal.SIGABRT
    assert f"written {said} of a tensor" in done.stderr


def test_access_to_freed_memory_faults(library: str) -> None:
    done = python(library, "a = tensor(100)\nc.free(a)\nbytes_of(a, 1)[0]")
    assert done.returncode == -signal.SIGSEGV
    assert "one that was freed" in done.stderr


@pytest.mark.parametrize("offset", [0, 64])
def test_double_or_invalid_free_aborts(library: str, offset: int) -> None:
    freed = "c.free(a)" if offset == 0 else ""
    done = python(library, f"a = tensor(100)\n{freed}\nc.free(a + {offset})")
    assert done.returncode == -signal.SIGABRT
    assert "double free or corruption" in done.stderr


def test_memory_of_freed_blocks_is_released(library: str) -> None:
    code = """
start = resident_mib()
for number in range(100_000):
    c.free(tensor(4 * (number % 3000) + 1))
for number in range(200):
    c.free(tensor(16 << 20))
tables = int(open("/proc/self/status").read().partition("VmPTE:")[2].split()[0])
assert resident_mib() - start < 60, resident_mib() - start
assert tables < 40_000, tables
assert len(open("/proc/self/maps").readlines()) < 200
"""
    works(library, code)


def test_freed_addresses_are_reused_without_touching_live_blocks(library: str) -> None:
    code = """
held = [tensor(100 + number) for number in range(50)]
for number, block in enumerate(held):
    ctypes.memset(block, number, 100 + number)
met = set()
for number in range(20_000):
    block = tensor(1 + number % 9000)
    assert block not in held
    met.add(block & ~4095)
    c.free(block)
assert len(met) < 2000, len(met)
for number, block in enumerate(held):
    assert set(bytes_of(block, 100 + number)) == {number}
"""
    works(library, code, environment={"SHRINKFX_GUARD_QUARANTINE": str(32 << 20)})


THREADS = r"""
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void *use(void *argument) {
  int number = (int)(intptr_t)argument;
  void *held[32] = {};
  size_t sizes[32] = {};
  for (int step = 0; step < 20000; step++) {
    int slot = step % 32;
    for (size_t at = 0; at < sizes[slot]; at += 99)
      if (((unsigned char *)held[slot])[at] != number) _exit(2);
    free(held[slot]);
    sizes[slot] = 1 + (step * 37) % 3000;
    if (posix_memalign(&held[slot], 64, sizes[slot])) _exit(3);
    memset(held[slot], number, sizes[slot]);
  }
  return nullptr;
}

int main() {
  pthread_t threads[4];
  for (intptr_t n = 0; n < 4; n++)
    pthread_create(&threads[n], nullptr, use, (void *)(n + 1));
  for (int attempt = 0; attempt < 100; attempt++) {
    void *inherited = nullptr, *own = nullptr;
    if (posix_memalign(&inherited, 64, 500)) return 4;
    pid_t child = fork();
    if (!child) {
      alarm(20);
      free(inherited);
      _exit(posix_memalign(&own, 64, 77));
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status) return 5;
    free(inherited);
  }
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
  puts("done");
}
"""


def test_allocator_is_safe_with_threads_and_forks(library: str, tmp_path: Path) -> None:
    source, program = tmp_path / "threads.cpp", tmp_path / "threads"
    source.write_text(THREADS)
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-pthread", str(source), "-o", str(program)]
    subprocess.run(command, check=True, timeout=600)
    own = {**os.environ, "SHRINKFX_GUARD_CALLER": ""}
    environment = guard_pages.guarded_environment(own, library, Guard.AFTER)
    done = subprocess.run(
        [program], env=environment, capture_output=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr


def test_realloc_and_usable_size_handle_guarded_and_plain_blocks(library: str) -> None:
    code = """
block = tensor(100)
ctypes.memset(block, 7, 100)
assert c.malloc_usable_size(block) == 100
larger = c.realloc(block, 5000)
assert bytes(bytes_of(larger, 100)) == b"\\7" * 100
assert c.malloc_usable_size(larger) >= 5000
c.free(c.realloc(larger, 9000))
smaller = c.realloc(tensor(100), 10)
assert bytes(bytes_of(smaller, 10)) == b"\\xff" * 10
c.free(smaller)
c.free(c.malloc(10))
c.free(None)
"""
    works(library, code)


def test_only_tensor_aligned_allocations_are_guarded(library: str) -> None:
    code = """
usual = tensor(100, alignment=128)
assert (usual + 100) % 4096
assert (tensor(100) + 100) % 4096 == 0
c.shrinkfx_guard(0)
assert (tensor(100) + 100) % 4096
c.free(usual)
"""
    works(library, code)


def test_only_allocations_by_the_tensor_library_are_guarded(library: str) -> None:
    code = "assert (tensor(100) + 100) % 4096 == 0"
    works(library, code, environment={"SHRINKFX_GUARD_CALLER": "ffi"})
    code = "assert (tensor(100) + 100) % 4096"
    works(library, code, environment={"SHRINKFX_GUARD_CALLER": "libc10.so"})


def test_grain_sets_the_alignment_of_blocks(library: str) -> None:
    code = "assert tensor(100) % 64 == 0\nassert tensor(1) % 64 == 0"
    works(library, code, environment={"SHRINKFX_GUARD_GRAIN": "64"})


def test_guard_library_is_removed_from_ld_preload(library: str) -> None:
    code = "assert 'LD_PRELOAD' not in os.environ, os.environ['LD_PRELOAD']"
    works(library, code)
    code = "assert os.environ['LD_PRELOAD'] == 'libm.so.6'"
    works(library, code, environment={"LD_PRELOAD": "libm.so.6"})


def test_build_keeps_a_library_for_each_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    first = guard_pages.build()
    made = first.stat().st_ino
    assert guard_pages.build() == first
    assert first.stat().st_ino == made
    other = tmp_path / "g++"
    other.write_text('#!/bin/sh\nexec g++ "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("CXX", str(other))
    assert guard_pages.build() != first
    assert len(list(first.parent.iterdir())) == 2


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_failed_build_gives_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", compiler)
    with pytest.raises(native.CannotBuild, match=r"compiler found|fails"):
        guard_pages.build()


def test_messages_of_simultaneous_faults_are_not_interleaved(library: str) -> None:
    """Threads wait for each other, and then read past the ends of their tensors."""
    code = """
import threading
wait = threading.Barrier(4)
def fault(size):
    block = ctypes.c_void_p(tensor(size))
    c.memset(block, 1, ctypes.c_size_t(size))
    wait.wait()
    c.memchr(block, 0, ctypes.c_size_t(size + 1))  # without Python's lock
sizes = (100, 5000, 70_000, 1_000_000)
threads = [threading.Thread(target=fault, args=[size]) for size in sizes]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    for _ in range(5):
        done = python(library, code)
        assert done.returncode == -signal.SIGSEGV
        said = [row for row in done.stderr.splitlines() if "guard pages" in row]
        assert said
        for row in said:
            assert re.fullmatch(_WHOLE, row), row


_WHOLE = (
    r"guard pages: illegal memory access: \w+ just past the end of a tensor of "
    r"(100|5000|70000|1000000) bytes"
)
