"""Packages of AOTInductor: weights, instruction sets and caches."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._inductor.config
import torch._inductor.cpu_vec_isa
from torch import Tensor, nn
from torch._inductor import codecache
from torch._inductor.cpu_vec_isa import VecAVX2, VecISA
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
from torch.export import ExportedProgram, export

from shrinkfx.errors import LoadError
from shrinkfx.protocol.choices import MANY_BYTES, Weights
from shrinkfx.protocol.requests import CheckOptions, Setup
from shrinkfx.worker.aoti import backend
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.aoti.backend import (
    CannotKeepWeightsApart,
    cache_instruction_sets,
    own_cache_variables,
)
from shrinkfx.worker.checking.check import Check
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import Inputs

# --- weights outside of the package


ROOT = Path(__file__).resolve().parents[2]


class Weighty(nn.Module):
    """Holds a parameter, a buffer, and a slice of another tensor."""

    count: Tensor
    part: Tensor

    def __init__(self, rows: int = 8) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, 6))
        self.register_buffer("count", torch.arange(6.0))
        self.register_buffer("part", torch.randn(12)[4:10])

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight.sum(0) + self.count + self.part


def exported(rows: int = 8) -> ExportedProgram:
    return export(Weighty(rows), (torch.randn(6),))


class Loader:
    """Takes constants as a loaded package does."""

    def update_constant_buffer(
        self, tensors: dict[str, Tensor], inactive: bool, whole: bool, ours: bool
    ) -> None:
        assert (inactive, whole, ours) == (False, True, True)
        self.tensors = tensors


def test_constants_are_passed_in_one_block_in_runtime_layout() -> None:
    whole = torch.arange(40.0)
    given = {
        "bytes": torch.arange(3, dtype=torch.uint8),
        "wide": torch.randn(4, 5).t(),
        "none": torch.empty(0),
        "part": whole[8:20].view(3, 4),
        "odd": torch.tensor([True]),
    }
    loader = Loader()
    backend.hand_over(loader, given)
    for name, value in given.items():
        laid = loader.tensors[name]
        assert torch.equal(laid, value)
        assert (laid.stride(), laid.dtype) == (value.stride(), value.dtype)
    starts = [
        loader.tensors[name].data_ptr() - 4 * given[name].storage_offset()
        for name in ("bytes", "wide", "part", "odd")
    ]
    # 3 bytes, 80, and the whole of what a part is of: 160; each rounded up to 64.
    assert [s - starts[0] for s in starts] == [0, 64, 64 + 128, 64 + 128 + 192]
    loader.tensors["wide"].zero_()  # what compiled code spoils is a copy
    assert given["wide"].abs().sum() > 0


def test_padding_between_constants_is_zero_as_in_a_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel that reads past the end of a weight reads it."""
    rest = ctypes.create_string_buffer(b"\xff" * 192, 192)
    heap = SimpleNamespace(malloc=lambda size: ctypes.addressof(rest))
    monkeypatch.setattr(backend, "_LIBC", heap)
    backend.hand_over(Loader(), {"a": torch.ones(3), "b": torch.ones(17)})
    assert rest.raw[12:64] == bytes(52)
    assert rest.raw[64 + 68 :] == bytes(60)


def test_negative_zero_is_saved_as_a_different_constant(tmp_path: Path) -> None:
    program = exported()
    program.state_dict["count"].zero_()
    compiled = {"count": torch.zeros(6).neg()}
    backend.save(compiled, program, tmp_path / "weights")
    found = backend.read(program, tmp_path / "weights")["count"]
    assert found.signbit().all()


def test_saved_constants_are_read_back_sharing_program_weights(tmp_path: Path) -> None:
    program = exported()
    weight = program.state_dict["weight"]
    compiled = {
        "weight": weight.detach(),
        "count": program.state_dict["count"].clone(),  # as AOTInductor does
        "made": torch.full((2,), 7.0),
    }
    backend.save(compiled, program, tmp_path / "weights")
    found = backend.read(program, tmp_path / "weights")
    assert list(found) == list(compiled)
    assert all(torch.equal(found[name], compiled[name]) for name in compiled)
    assert found["weight"].data_ptr() == weight.data_ptr()
    assert (tmp_path / "weights").stat().st_size < 4096


ROWS = MANY_BYTES // (6 * 4) + 1


@pytest.mark.parametrize(
    ("rows", "options", "worth"),
    [
        (ROWS, {}, True),
        (ROWS, {"max_autotune": True}, True),
        (8, {}, False),
        (ROWS, {"freezing": True}, False),
        (ROWS, {"aot_inductor.force_mmap_weights": True}, False),
        (ROWS, {"aot_inductor.package_constants_in_so": True}, False),
    ],
)
def test_large_weights_are_left_out_unless_options_place_them(
    rows: int, options: dict[str, bool], worth: bool
) -> None:
    assert backend.can_leave_weights_out(exported(rows), options) is worth


def test_constants_of_a_compilation_are_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, folded = torch.ones(2), torch.zeros(2)
    graph: Any = SimpleNamespace(
        constants={"a": first, "b": folded},
        folded_constants={"b"},
        get_original_value_of_constant={"a": first, "b": folded}.__getitem__,
    )

    class Compiler:
        @classmethod
        def compile(cls, graph: object, *arguments: object) -> object:
            return arguments

    monkeypatch.setattr(codecache, "AotCodeCompiler", Compiler)
    with backend.collect_constants() as found:
        stands: Any = codecache.AotCodeCompiler
        assert stands.compile(graph, "wrapper", "kernel") == ("wrapper", "kernel")
    assert list(found) == ["a"]
    assert found["a"] is first
    stands.compile(graph, "wrapper", "kernel")
    assert list(found) == ["a"]


def test_constants_that_are_not_plain_cpu_tensors_are_refused() -> None:
    backend.require_plain({"a": torch.ones(2)})
    with pytest.raises(CannotKeepWeightsApart, match="b is no plain tensor on the CPU"):
        backend.require_plain({"a": torch.ones(2), "b": torch.ones(2).to_sparse()})


def test_package_that_refuses_weights_is_rebuilt_with_weights_inside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[CheckOptions] = []

    def build_once(*given: Any) -> bool:
        asked.append(given[-1])
        return bool(given[-1].weights is Weights.BESIDE)

    def load(is_beside: bool) -> nn.Module:
        if is_beside:
            raise aoti.CannotHandOver("constant 'a' is on another device")
        return exported().module()

    monkeypatch.setattr(aoti, "build_once", build_once)
    monkeypatch.setattr(aoti, "load", load)
    program = exported()
    example = Inputs((torch.ones(6),), {})
    run = RebuiltCandidate(program, example, example)
    options = CheckOptions(weights=Weights.BESIDE, package="kept")
    stages: list[str] = []
    Check(Setup(str(tmp_path)), run, options, stages.append, tmp_path).perform()
    assert asked == [options, CheckOptions(weights=Weights.INSIDE)]
    assert stages[-4:] == ["load", "run", "compare", "done"]


PROGRAM = """
import sys
from pathlib import Path
import torch
from torch import nn
from shrinkfx.protocol.choices import Build, Weights
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.aoti import backend
from shrinkfx.worker.eager.intermediates import run_eager
from shrinkfx.worker.model import Inputs

backend.MANY_BYTES = 1

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6))
        self.tied = self.weight
        self.register_buffer("calls", torch.zeros(6))
        whole = torch.randn(4, 6)
        self.some, self.rest = nn.Parameter(whole[:2]), nn.Parameter(whole[2:])
        self.table = torch.randn(6, 6)

    def forward(self, x):
        self.calls.add_(1)
        x = x @ self.weight + nn.functional.linear(x, self.tied, self.calls)
        return x @ self.table + self.some.sum(0) * self.rest[1] + torch.tensor([2.5])

args = (torch.randn(5, 6),)
exported = torch.export.export(Model(), args)
inputs = Inputs(args, {})
home = Path(sys.argv[1])
for build, kept in ((Build.STOCK, None), (Build.FAST, "kept"), (Build.FAST, "kept")):
    folder = home / f"{build}-{len(list(home.iterdir()))}"
    folder.mkdir()
    path = str(home / f"{kept}.pt2") if kept else None
    options = CheckOptions(build=build, weights=Weights.BESIDE, package=path)
    package = aoti.build_once(exported, folder, {}, options)
    assert package.weights, "they were put inside"
    compiled = aoti.load(package)
    for calls in (1, 2):
        (eager,) = run_eager(exported, inputs, seed=0, calls=calls)
        torch.testing.assert_close(compiled(*args), eager)
print(*(p.name for p in sorted(home.iterdir())))
"""


@pytest.mark.aoti
@pytest.mark.every_run
def test_packages_with_weights_left_out_match_eager(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, timeout=900, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert "kept.pt2 kept.pt2.weights" in done.stdout


# --- instruction sets


class Compiler:
    """Takes the place of g++ and of the Python that loads what it has made."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.can = True

    def __call__(self, isa: VecISA, code: str) -> bool:
        self.asked.append(code)
        return self.can


@pytest.fixture(name="compiler")
def _compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    compiler = Compiler()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def check_build(isa: VecISA, code: str) -> bool:
        return compiler(isa, code)

    monkeypatch.setattr(VecISA, "check_build", check_build)
    return compiler


def can_use(code: str) -> bool:
    """Ask as another process would."""
    with cache_instruction_sets():
        return VecAVX2().check_build(code)


def test_usable_instruction_set_is_checked_once(compiler: Compiler) -> None:
    assert [can_use(code) for code in ("exp", "exp", "dot", "exp")] == [True] * 4
    assert compiler.asked == ["exp", "dot"]


def test_failed_check_is_repeated(compiler: Compiler) -> None:
    compiler.can = False
    assert not can_use("exp")
    compiler.can = True
    assert can_use("exp")
    assert compiler.asked == ["exp", "exp"]


@pytest.mark.parametrize("variable", ["LD_PRELOAD", "CPLUS_INCLUDE_PATH"])
def test_check_is_repeated_if_library_paths_change(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    can_use("exp")
    monkeypatch.setenv(variable, "")
    can_use("exp")
    assert compiler.asked == ["exp", "exp"]


def test_check_is_repeated_for_another_compiler(
    compiler: Compiler, tmp_path: Path
) -> None:
    can_use("exp")
    other = tmp_path / "c++"
    other.write_text('#!/bin/sh\nexec g++ "$@"\n')
    other.chmod(0o755)
    with torch._inductor.config.patch({"cpp.cxx": (str(other),)}):
        can_use("exp")
    assert compiler.asked == ["exp", "exp"]


def test_check_is_repeated_if_the_cache_is_unwritable(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    full = tmp_path / "file"
    full.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(full))
    assert can_use("exp")
    assert can_use("exp")
    assert compiler.asked == ["exp", "exp"]


def test_original_check_is_restored_after_the_context(compiler: Compiler) -> None:
    with cache_instruction_sets():
        VecAVX2().check_build("exp")
    VecAVX2().check_build("exp")
    assert compiler.asked == ["exp", "exp"]


# --- caches of scripts


def test_scripts_share_the_inductor_cache_except_per_program_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "shared"))
    shared, of_a_text = Path(default_cache_dir()), "c" * 52
    for name in ("ab", "triton", "locks", of_a_text):
        (shared / name).mkdir(parents=True)
    for script in (tmp_path / "one", tmp_path / "two"):
        script.mkdir()
        variables = own_cache_variables(script)
        own = Path(variables["TORCHINDUCTOR_CACHE_DIR"])
        assert variables["TMPDIR"] == str(own.parent) == str(script)
        linked = {path.name: path.resolve() for path in own.iterdir()}
        assert linked.keys() == {"ab", "triton", "precompiled_headers", "locks"}
        assert {path.parent for path in linked.values()} == {shared}
        (own / of_a_text / "made").mkdir(parents=True)
    assert not list((shared / of_a_text).iterdir())


# --- warm-up


def test_lock_timeout_is_not_reported_as_a_missing_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def waits() -> None:
        raise TimeoutError("The file lock 'x.lock' could not be acquired.")

    monkeypatch.setattr(torch._inductor.cpu_vec_isa, "pick_vec_isa", waits)
    with pytest.raises(LoadError) as refused:
        aoti.warm_up()
    assert "could not be acquired" in refused.value.reason
    assert "g++" not in str(refused.value.advice)
    assert "TORCHINDUCTOR_CACHE_DIR" in str(refused.value.advice)
