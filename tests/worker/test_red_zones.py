"""Red zones without a GPU: their logic, built with the CPU for a device.

``zones_on_cpu.cpp`` is that device; all else is what nvcc compiles for a GPU.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from shrinkfx.worker import native
from shrinkfx.worker.cuda_memory import red_zones

HERE = Path(__file__).parent
ZONES = Path(red_zones.__file__).parent

pytestmark = pytest.mark.processes

PRELUDE = """
import ctypes, sys
zones = ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
zones.shrinkfx_zones_malloc.restype = ctypes.c_void_p
malloc, release = zones.shrinkfx_zones_malloc, zones.shrinkfx_zones_free
malloc.restype = ctypes.c_void_p
malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
release.argtypes = [ctypes.c_void_p, *malloc.argtypes]
AFTER, BEFORE = 1, 2
zones.shrinkfx_zones_set(AFTER, 0)

def tensor(size):
    return malloc(size, 0, None)

def free(block, size):
    release(block, size, 0, None)

def bytes_of(block, size):
    return (ctypes.c_ubyte * size).from_address(block)

def write(block, *places):
    for place in places:
        bytes_of(block + place, 1)[0] = 7

def findings():
    text = ctypes.create_string_buffer(4096)
    zones.shrinkfx_zones_findings(text, ctypes.c_size_t(4096))
    return text.value.decode().splitlines()

def found():
    zones.shrinkfx_zones_look()
    return findings()
"""

PAGES = {"ZONES_PAGE": "8192"}


@pytest.fixture(name="built", scope="module")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the zones, a driver, and a library that launches kernels by it."""
    folder = tmp_path_factory.mktemp("zones")
    compile_into(folder / "libzones.so", "zones_on_cpu.cpp", f"-I{ZONES}", "-ldl")
    compile_into(folder / "libcuda.so.1", "fake_driver.cpp")
    driver = str(folder / "libcuda.so.1")
    compile_into(folder / "liblaunching.so", "launching.cpp", driver)
    return folder


def compile_into(library: Path, source: str, *flags: str) -> None:
    command = ["g++", "-std=c++17", "-Wall", "-Werror", "-O1", "-fPIC", "-shared"]
    name = f"-Wl,-soname,{library.name}"
    command += [name, str(HERE / source), "-o", str(library), *flags]
    subprocess.run(command, check=True, timeout=300)


def python(
    built: Path, code: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code, str(built / "libzones.so"), str(built)],
        env={**os.environ, "LD_LIBRARY_PATH": str(built), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def works(built: Path, code: str, environment: Mapping[str, str] | None = None) -> None:
    done = python(built, code, environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("environment", [{}, PAGES], ids=["zones", "pages"])
def test_access_within_bounds_is_not_reported(
    built: Path, environment: Mapping[str, str]
) -> None:
    code = """
for size in (1, 15, 16, 17, 4096, 8192, 100_001):
    for side in (AFTER, BEFORE):
        zones.shrinkfx_zones_set(side, 0)
        block = tensor(size)
        assert block % 16 == 0, (size, side)
        bytes_of(block, size)[:] = bytes(size)
        assert found() == []
        free(block, size)
        assert findings() == []
assert tensor(0) is None
"""
    works(built, code, environment)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ((100,), "write just past the end of a tensor of 100 bytes"),
        ((104, 103, 3000), "write 3 bytes past the end of a tensor of 100 bytes"),
        ((-1,), "write 1 byte before the start of a tensor of 100 bytes"),
        ((-40, -8), "write 8 bytes before the start of a tensor of 100 bytes"),
    ],
)
def test_overrun_is_reported_once_at_the_byte_nearest_to_the_tensor(
    built: Path, places: tuple[int, ...], said: str
) -> None:
    code = f"""
others = [tensor(64), tensor(64)]
block = tensor(100)
write(block, *{places})
assert found() == [{said!r}], found()
assert found() == []
"""
    works(built, code)


def test_overruns_on_both_sides_of_several_tensors_are_reported(built: Path) -> None:
    code = """
small, large = tensor(8), tensor(5000)
write(small, 8)
write(large, -2, 5001)
assert sorted(found()) == [
    "write 1 byte past the end of a tensor of 5000 bytes",
    "write 2 bytes before the start of a tensor of 5000 bytes",
    "write just past the end of a tensor of 8 bytes",
]
"""
    works(built, code)


def test_overrun_of_a_freed_tensor_is_reported(built: Path) -> None:
    code = """
block = tensor(100)
write(block, 101)
free(block, 100)
past = "write 1 byte past the end of a tensor of 100 bytes, which was freed since"
assert found() == [past]
"""
    works(built, code)


@pytest.mark.parametrize("environment", [{}, PAGES], ids=["zones", "pages"])
def test_uninitialized_memory_is_nan(
    built: Path, environment: Mapping[str, str]
) -> None:
    """So a result that was made of it, or of a zone, differs from eager's."""
    code = """
import math, struct
block = tensor(8)
assert math.isnan(struct.unpack("f", bytes(bytes_of(block, 4)))[0])
past = bytes(bytes_of(block + 8, 8)) if tensor(9) else b""
assert math.isnan(struct.unpack("d", past)[0])
assert struct.unpack("q", past) == (-1,)
assert past[:2] == b"\\xff\\xff"  # bfloat16 and float16: a NaN
"""
    if environment:
        code = code.replace("past = bytes(bytes_of(block + 8, 8))", "past = bytes(8)")
        code = code[: code.index("past =")]
    works(built, code, environment)


@pytest.mark.parametrize("size", [16, 8192, 8193, 100_000])
def test_write_past_the_last_page_of_a_tensor_faults(built: Path, size: int) -> None:
    code = f"block = tensor({size})\nwrite(block, {-(-size // 16) * 16})"
    done = python(built, code, PAGES)
    assert done.returncode == -signal.SIGSEGV, done.stderr


def test_bytes_between_a_tensor_and_the_page_end_are_a_zone(built: Path) -> None:
    """A tensor begins at a multiple of 16 bytes, so it need not end at the page."""
    code = """
block = tensor(100)
write(block, 105)
assert found() == ["write 5 bytes past the end of a tensor of 100 bytes"], found()
assert zones.shrinkfx_zones_have_pages() == 1
"""
    works(built, code, PAGES)


def test_write_before_the_first_page_of_a_tensor_faults(built: Path) -> None:
    code = """
zones.shrinkfx_zones_set(BEFORE, 0)
block = tensor(100)
write(block, 100)
assert found() == ["write just past the end of a tensor of 100 bytes"]
write(block, -1)
"""
    assert python(built, code, PAGES).returncode == -signal.SIGSEGV


def test_access_to_freed_pages_faults(built: Path) -> None:
    code = "block = tensor(100)\nfree(block, 100)\nbytes_of(block, 1)[0]"
    assert python(built, code, PAGES).returncode == -signal.SIGSEGV


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"ZONES_MEMORY": "9000"}, "CUDA out of memory. Tried to allocate 1000000 "),
        (
            {"ZONES_MEMORY": "9000", "ZONES_TROUBLE": "unspecified launch failure"},
            "CUDA error: unspecified launch failure",
        ),
    ],
)
def test_failed_allocation_reports_the_reason(
    built: Path, environment: Mapping[str, str], said: str
) -> None:
    """PyTorch catches what is thrown, and would take a null pointer for memory."""
    done = python(built, "tensor(1_000_000)", environment)
    assert done.returncode == -signal.SIGABRT
    assert said in done.stderr


def test_standalone_script_aborts_with_the_finding(built: Path) -> None:
    code = """
zones.shrinkfx_zones_set(AFTER, 1)
block = tensor(100)
write(block, 104)
free(block, 100)
"""
    done = python(built, code)
    assert done.returncode == -signal.SIGABRT
    said = "write 4 bytes past the end of a tensor of 100 bytes"
    assert f"red zones: illegal memory access: {said}" in done.stderr


def test_launch_that_overwrites_a_zone_is_named(built: Path) -> None:
    code = """
generated = ctypes.CDLL(sys.argv[2] + "/liblaunching.so")
generated.run.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
block = tensor(64)
generated.run(block, 64, 8)
assert found() == ["write just past the end of a tensor of 64 bytes"]
zones.shrinkfx_zones_watch(1)
generated.run(block, 64, 8)
past = "write just past the end of a tensor of 64 bytes, in "
assert found() == [past + "triton_poi_fused_mul_1"]
write(block, 64)
generated.run(block, 64, 0)
assert found() == [past + "an operator before triton_poi_fused_add_0"]
"""
    works(built, code)


SPOILING = """
from shrinkfx.worker.cuda_memory.red_zones import ZoneOverwritten, ZoneCheckedProgram

block = tensor(64)
generated = ctypes.CDLL(sys.argv[2] + "/liblaunching.so")
generated.run.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
calls = []

def compiled(more, again=None):
    calls.append(more)
    generated.run(block, 64, again if again is not None and calls[1:] else more)
    return "result"

call = ZoneCheckedProgram(zones, compiled)
assert call(0) == "result"
calls.clear()
try:
    call({arguments})
except ZoneOverwritten as error:
    print(error, len(calls))
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "4",
            "write just past the end of a tensor of 64 bytes, in "
            "triton_poi_fused_mul_1 2",
        ),
        # What it does in some calls only is told all the same.
        ("4, 0", "write just past the end of a tensor of 64 bytes 2"),
    ],
)
def test_call_that_overwrites_a_zone_raises_with_the_kernel(
    built: Path, arguments: str, said: str
) -> None:
    done = python(built, SPOILING.format(arguments=arguments))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"red zones: illegal memory access: {said}"


STAND_IN = """
import ctypes
from types import SimpleNamespace as Namespace

def allocator(library, *names):
    chosen.extend([library, *names])

chosen = []
changed = chosen.append
memory = Namespace(CUDAPluggableAllocator=allocator, change_current_allocator=changed)
cuda = Namespace(memory=memory)
"""

OVERRUNS = """
import ctypes, sys, torch
library, *names, _ = torch.chosen
zones = ctypes.CDLL(library)
malloc = getattr(zones, names[0])
malloc.restype = ctypes.c_void_p
block = malloc(100, 0, None)
(ctypes.c_ubyte * 4).from_address(block + 104)[0] = 7
print("its end", sys.argv)
"""


def test_user_script_is_run_with_zones_and_checked_at_its_end(
    built: Path, tmp_path: Path
) -> None:
    """It needs nothing of shrinkfx; torch is a stand-in that keeps what it is told."""
    (tmp_path / "torch.py").write_text(STAND_IN)
    script = tmp_path / "repro.py"
    script.write_text(OVERRUNS)
    first = str(ZONES / "first.py")
    done = subprocess.run(
        [sys.executable, first, str(built / "libzones.so"), "1", str(script)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == -signal.SIGABRT
    assert done.stdout.splitlines() == [
        f"its end ['{script}']",
        "red zones: tensors lie between zones only: this driver cannot map pages",
    ]
    said = "write 4 bytes past the end of a tensor of 100 bytes"
    assert f"red zones: illegal memory access: {said}" in done.stderr


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc here")
def test_zone_library_for_a_gpu_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is built is kept in the user's cache, by its text."""
    library = red_zones.build()
    assert library == red_zones.build()
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in ("shrinkfx_zones_malloc", "shrinkfx_zones_free", "cuLaunchKernel"):
        assert f" T {name}\n" in symbols


def test_missing_nvcc_is_reported_with_cuda_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(native.CannotBuild, match=r"nvcc .*CUDA_HOME"):
        red_zones.build()
