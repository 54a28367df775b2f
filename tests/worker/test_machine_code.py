"""Where the code of kernels lies in a process that has loaded them."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from shrinkfx.worker.explaining.compiled_code import locate_kernels

KERNELS = """
extern "C" int cpp_fused_add_0(int x) { return x + 1; }
extern "C" int cpp_fused_mul_1(int x) { return x * 3; }
static __attribute__((noinline, used))
int part(int x) __asm__("cpp_fused_mul_1._omp_fn.0");
static int part(int x) { return x - 2; }
extern "C" int other(int x) { return part(x); }
"""


def test_kernels_and_their_parts_are_located_in_loaded_libraries(
    tmp_path: Path,
) -> None:
    source, library = tmp_path / "kernels.cpp", tmp_path / "in" / "kernels.so"
    source.write_text(KERNELS)
    library.parent.mkdir()
    compiler = ["g++", "-O1", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(compiler, check=True, timeout=120)
    loaded = ctypes.CDLL(str(library))
    found = locate_kernels({"cpp_fused_add_0", "cpp_fused_mul_1"}, tmp_path)
    assert sorted(code.kernel for code in found) == [
        "cpp_fused_add_0",
        "cpp_fused_mul_1",
        "cpp_fused_mul_1",
    ]
    add = ctypes.cast(loaded.cpp_fused_add_0, ctypes.c_void_p).value
    assert add in {code.start for code in found}
    assert all(code.size for code in found)
    assert locate_kernels({"cpp_fused_add_0"}, tmp_path / "elsewhere") == ()
