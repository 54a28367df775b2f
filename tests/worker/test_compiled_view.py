"""The compiled-program view: inputs, ranges and machine code."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch
from support.exported import export, make_candidate
from support.zoo import load_program
from torch import Tensor, nn
from torch.export import Dim

from shrinkfx.program.candidate import Candidate
from shrinkfx.worker.eager.intermediates import SEED
from shrinkfx.worker.explaining.compiled_code import locate_kernels
from shrinkfx.worker.explaining.compiled_view import (
    collect_eager_ranges,
    describe_program_inputs,
)
from shrinkfx.worker.graph.rebuild import RebuiltCandidate, rebuild
from shrinkfx.worker.printing.module import export_source

# --- inputs and symbols


class Short(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        torch._check(x.shape[0] <= 16)
        return x.relu() + 1


@pytest.fixture(name="built")
def _built(tmp_path: Path) -> RebuiltCandidate:
    """A program that was saved, loaded and cut from, of which all is left."""
    sizes = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)
    exported = export(Short(), torch.randn(6, 4), dynamic_shapes=sizes)
    program, skeleton, values = load_program(exported, tmp_path)
    return rebuild(program, Candidate.from_skeleton(skeleton), values)


def test_symbols_have_the_guards_of_the_input_program(
    built: RebuiltCandidate,
) -> None:
    known = describe_program_inputs(built)
    assert not known.guards_unknown
    rows, columns = known.symbols
    (guard,) = rows.guards
    assert guard.replace("(", "").replace(")", "") == f"{rows.name} <= 16"
    assert columns.guards == ()


def test_symbols_of_a_reexported_program_have_no_known_guards(
    built: RebuiltCandidate,
) -> None:
    known = describe_program_inputs(built.with_new_export(export_source(built)[0]))
    assert "exported the program again" in known.guards_unknown
    assert not any(symbol.guards for symbol in known.symbols)


# --- ranges of eager values


class Draws(nn.Module):
    """A few numbers of the input, of chance, of both, and of whatever lies there."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        drawn = torch.randint(0, 1 << 40, (4,))
        lies_there = torch.empty(3, dtype=torch.int64)
        return x + 1, drawn, x + drawn, drawn * 0, lies_there * 1


def ranges(second_seed: int) -> dict[str, tuple[int, int]]:
    found = collect_eager_ranges(make_candidate(Draws(), torch.arange(4)), second_seed)
    return {each.node: (each.least, each.most) for each in found}


def test_random_values_have_no_range() -> None:
    told = ranges(SEED + 1)
    assert told["add"] == (1, 4)
    assert told["mul"] == (0, 0)  # whatever was drawn
    assert {"x", "add", "mul"} == told.keys()


def test_random_values_drawn_with_the_same_seed_have_a_range() -> None:
    assert {"randint", "add_1"} <= ranges(SEED).keys()


@pytest.mark.parametrize("seed", [3, 4])
def test_collecting_ranges_does_not_advance_the_random_generator(seed: int) -> None:
    torch.manual_seed(seed)
    expected = torch.rand(2)
    torch.manual_seed(seed)
    ranges(SEED)
    assert torch.equal(torch.rand(2), expected)


# --- machine code


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
