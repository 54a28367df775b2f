"""A check of a program: stages, passing inputs, undeclared sizes, operators."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.exported import Call, make_candidate, save_setup
from torch import Tensor, nn
from torch.export import Dim, export

from shrinkfx.check.client.server import Server
from shrinkfx.explain.values import find_first_wrong
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Kind
from shrinkfx.protocol.answers import Answer, Checked, Difference, Invalid
from shrinkfx.protocol.choices import Guard
from shrinkfx.protocol.files import ArtifactFile
from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.protocol.requests import CheckOptions, CheckOriginal, Request, Setup
from shrinkfx.testing import chain, whole
from shrinkfx.worker import disk_space
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.checking.check import (
    Check,
    add_tails,
    check_undeclared_sizes,
    find_out_of_bounds_operator,
    find_unexpected_mismatches,
    require_same_failure,
)
from shrinkfx.worker.eager.intermediates import FILLINGS
from shrinkfx.worker.explaining.recording import Recording
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.model import Inputs
from shrinkfx.worker.private_api.graph_api import TorchDispatchMode

# --- passing inputs


Compiled = Callable[[Tensor], Any]


class Counts(nn.Module):
    """Add how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return x + self.calls


def tried(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    load: Callable[[], Compiled],
    of: nn.Module | None = None,
    recording: Recording | None = None,
    options: CheckOptions | None = None,
) -> tuple[Checked, list[str]]:
    """Check a program that passes at 3 rows, and may fail at 4.

    Returns:
        The answer, and the stages.
    """
    example, passing, failing = (
        Inputs((torch.full((n, 2), float(n)),), {}) for n in (5, 3, 4)
    )
    dims = ({0: Dim("n", min=2, max=9)},)
    exported = export(of or Call(lambda x: x * 2), example.args, dynamic_shapes=dims)
    monkeypatch.setattr(aoti, "build_once", lambda *_: "package")
    monkeypatch.setattr(aoti, "load", lambda _: load())
    stages: list[str] = []
    setup = Setup(str(folder))
    run = RebuiltCandidate(exported, example, failing, passing=passing)
    asked = options or CheckOptions()
    said = Check(setup, run, asked, stages.append, folder, recording).answer()
    assert isinstance(said, Checked)
    return said, stages


def wrong_at(*rows: int) -> Compiled:
    return lambda x: x * 2 + (len(x) in rows)


def test_passing_inputs_run_before_failing_inputs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[int] = []

    def compiled(x: Tensor) -> Tensor:
        seen.append(len(x))
        return x * 2

    answer, stages = tried(monkeypatch, tmp_path, lambda: compiled)
    assert answer.difference is None
    assert seen == [3, 4]
    assert stages == ["eager", "compile", "load", "passing", "run", "compare", "done"]


@pytest.mark.parametrize(
    ("rows", "last"), [((4,), ["run", "compare", "done"]), ((3, 4), ["passing"])]
)
def test_failure_on_passing_inputs_ends_the_check(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    rows: tuple[int, ...],
    last: list[str],
) -> None:
    answer, stages = tried(monkeypatch, tmp_path, lambda: wrong_at(*rows))
    assert answer.difference is not None
    assert stages[-len(last) :] == last


@pytest.mark.parametrize(
    ("results", "runs"),
    [
        ([2, 2, 2, 2], 3),
        ([2, 0, 2], 2),  # one run passes
        ([2, 3, 2], 2),  # another wrong value
        ([0, 0, 0], 1),  # it does not fail
    ],
)
def test_failing_program_is_run_again_while_it_fails_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, results: list[int], runs: int
) -> None:
    errors = iter(results)

    def compiled(x: Tensor) -> Tensor:
        return x * 2 + (next(errors) if len(x) == 4 else 0)

    options = CheckOptions(failing_runs=3)
    answer, stages = tried(monkeypatch, tmp_path, lambda: compiled, options=options)
    assert stages.count("run") == runs
    assert (answer.difference is not None) == (results[runs - 1] > 0)


def test_program_with_buffers_is_reloaded_between_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer, _ = tried(monkeypatch, tmp_path, Counts, Counts())
    assert answer.difference is None


def test_recorded_values_of_both_runs_are_saved_in_the_check_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """C++ saves them below the current folder, which is the user's."""
    here, folder = tmp_path / "here", tmp_path / "check"
    here.mkdir()
    folder.mkdir()
    monkeypatch.chdir(here)
    wrote: list[Path] = []

    def compiled(x: Tensor) -> Tensor:
        Path("tmp").mkdir(exist_ok=True)
        (Path("tmp") / f"aoti_torchbefore_0_{len(x)}.pt").touch()
        wrote.append(Path.cwd())
        return x * 2

    tried(monkeypatch, folder, lambda: compiled, recording=Recording(folder))
    assert list(here.iterdir()) == []
    assert wrote == [folder / "passing", folder]  # what is read is the last one's


# --- undeclared sizes


class Halves(nn.Module):
    """Add the halves of an input: eager fails where there are none."""

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[0] // 2
        total: Tensor = x[:half] + x[half:]
        return total


EXAMPLE = Inputs((torch.randn(4, 2),), {})
HALVES = export(Halves(), EXAMPLE.args, dynamic_shapes=({0: 2 * Dim("n", min=2)},))


SETUP = Setup(directory="", inductor={"max_autotune": True})


def build_once(
    exported: object, folder: Path, options: Mapping[str, object], arguments: object
) -> str:
    assert options == SETUP.inductor  # the package may have gone
    return "package"


def refuse(x: Tensor) -> Tensor:
    raise RuntimeError("input_handles[0]: dim value is too small at 0")


def be_wrong(x: Tensor) -> Tensor:
    return x[: len(x) // 2] + x[len(x) // 2 :] + 1


def give_anything(x: Tensor) -> Tensor:
    return x


@pytest.mark.parametrize(
    ("rows", "compiled", "answer"),
    [
        (2, Halves(), Checked()),
        (2, refuse, Checked(refused="input_handles[0]: dim value is too small at 0")),
        (5, refuse, Checked(refused="input_handles[0]: dim value is too small at 0")),
        (5, Halves(), Checked(refused="The size of tensor a (2) must match")),
    ],
)
def test_refusal_or_the_eager_result_passes_at_undeclared_sizes(
    rows: int, compiled: Callable[..., Any], answer: Checked, outside: Outside
) -> None:
    seen = outside(rows, compiled)
    assert replace(seen, refused=seen.refused[: len(answer.refused)]) == answer
    assert os.environ["AOTI_RUNTIME_CHECK_INPUTS"] == "1"


@pytest.mark.parametrize(
    ("rows", "compiled", "words"),
    [
        (2, be_wrong, "elements differ"),
        (2, give_anything, "shape"),
        (
            5,
            give_anything,
            "the compiled program returns a result, and eager raises RuntimeError",
        ),
    ],
)
def test_silent_wrong_result_at_undeclared_sizes_is_a_difference(
    rows: int, compiled: Callable[..., Any], words: str, outside: Outside
) -> None:
    difference = outside(rows, compiled).difference
    assert difference is not None
    assert words in difference.text


Outside = Callable[[int, Callable[..., Any]], Checked]


@pytest.fixture(name="outside")
def _outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Outside:
    """Run what stands for a compiled program."""

    def run(rows: int, compiled: Callable[..., Any]) -> Checked:
        monkeypatch.setenv("AOTI_RUNTIME_CHECK_INPUTS", "0")
        monkeypatch.setattr(aoti, "build_once", build_once)
        monkeypatch.setattr(aoti, "load", lambda package: compiled)
        made = RebuiltCandidate(HALVES, EXAMPLE, Inputs((torch.randn(rows, 2),), {}))
        options = CheckOptions(package="package")
        check = Check(SETUP, made, options, lambda stage: None, tmp_path)
        answer = check_undeclared_sizes(check)
        assert isinstance(answer, Checked)
        return answer

    return run


# --- results that are shorter than declared


SHORT = "shrinkfx_tails.narrow.default"


@torch.library.custom_op("shrinkfx_tails::narrow", mutates_args=())
def narrow(x: Tensor) -> Tensor:
    return x.to(torch.int32)


@narrow.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, dtype=torch.int64)


def as_declared(x: Tensor) -> list[int]:
    """Read the operator's result as compiled code does: to its declared end."""
    result = torch.ops.shrinkfx_tails.narrow(x)
    memory = torch.empty(0, dtype=torch.uint8).set_(result.untyped_storage())
    values: list[int] = memory[: 8 * x.numel()].view(torch.int64).tolist()
    return values


def ways(
    compiled: Callable[..., Any], x: Tensor, tails: Sequence[str], **more: Any
) -> list[Callable[..., Any]]:
    run = make_candidate(Call(lambda x: torch.ops.shrinkfx_tails.narrow(x) + 1), x)
    return add_tails(compiled, run, CheckOptions(tails=tuple(tails), **more))


@pytest.mark.parametrize("length", [1, 3, 4000])
def test_compiled_code_reads_known_bytes_past_a_short_result(length: int) -> None:
    x = torch.full((length,), 3.0)
    zeros, others = (way(x) for way in ways(as_declared, x, [SHORT]))
    pairs, odd = [3 + (3 << 32)] * (length // 2), length % 2
    behind = length - length // 2 - odd
    assert zeros == [*pairs, *[3] * odd, *[0] * behind]
    one = int.from_bytes(bytes([FILLINGS[1]]) * 8, "little")
    glued = 3 + (one >> 32 << 32)
    assert others == [*pairs, *[glued] * odd, *[one] * behind]


def test_filled_result_keeps_values_and_strides() -> None:
    x = torch.randn(3, 5).t()
    for way in ways(torch.ops.shrinkfx_tails.narrow, x, [SHORT]):
        result = way(x)
        assert torch.equal(result, x.to(torch.int32))
        assert result.stride() == x.to(torch.int32).stride()


def test_results_in_a_program_of_dynamo_get_tails() -> None:
    x = torch.ones(3)
    compiled = torch.compile(lambda x: narrow(x), backend="eager", fullgraph=True)
    for way in ways(compiled, x, [SHORT]):
        assert way(x).untyped_storage().nbytes() >= 8 * x.numel()


def test_tails_are_filled_only_if_requested() -> None:
    assert ways(as_declared, torch.ones(2), ()) == [as_declared]
    recorded = ways(as_declared, torch.ones(1), [SHORT], compiled_view="folder")
    assert [way(torch.ones(1)) for way in recorded] == [[1]]  # one run, with zeros


PASSES, NAN = Checked(), Checked(Difference("nan", "inf"))
WRONG = Checked(Difference("values", "by 3"))
TYPES = Invalid("eager fails in the same way")


def raising(text: str) -> Callable[[], Answer]:
    def run() -> Answer:
        raise RuntimeError(text)

    return run


def giving(answer: Answer) -> Callable[[], Answer]:
    return lambda: answer


@pytest.mark.parametrize(
    ("runs", "sought", "answer"),
    [
        ([giving(PASSES)], "mismatch", PASSES),
        ([giving(WRONG)], "assert", WRONG),
        ([giving(WRONG), giving(WRONG)], "mismatch", WRONG),
        ([giving(PASSES), raising("index")], "assert", PASSES),
        ([giving(WRONG), raising("index")], "assert", WRONG),
        ([raising("index"), giving(PASSES)], "assert", PASSES),
        ([giving(WRONG), giving(TYPES)], "mismatch", None),
        ([giving(WRONG), giving(NAN)], "nan", None),
        ([giving(WRONG), raising("index")], "mismatch", None),
        ([raising("index"), raising("size")], "assert", None),
    ],
)
def test_failure_counts_only_if_each_filling_gives_the_same_one(
    runs: list[Callable[[], Answer]], sought: str, answer: Answer | None
) -> None:
    found = require_same_failure(runs, sought)
    if answer is None:
        assert isinstance(found, Invalid)
        assert "memory after the end of a result" in found.why
    else:
        assert found is answer


def test_exception_with_each_filling_is_raised() -> None:
    with pytest.raises(RuntimeError, match="0 <= tmp2 < 5L"):
        require_same_failure(
            [raising("0 <= tmp1 < 5L"), raising("0 <= tmp2 < 5L")], "assert"
        )


def test_exception_ends_a_check_that_looks_for_a_wrong_result() -> None:
    with pytest.raises(RuntimeError, match="index"):
        require_same_failure([raising("index"), giving(WRONG)], "mismatch")


# --- out-of-bounds reads of operators


SCALED = "rows.scaled.default"


def scaled(x: Tensor, by: Tensor) -> Tensor:
    """Read one factor for each row of ``x``, as C++ would: without asking ``by``."""
    if x.shape[0] > 8:
        raise RuntimeError("too many rows")
    factors = (ctypes.c_float * x.shape[0]).from_address(by.data_ptr())
    return x * torch.tensor(list(factors)).unsqueeze(1)


@pytest.fixture(name="operator", scope="module")
def _operator() -> Iterator[None]:
    with torch.library._scoped_library("rows", "DEF") as lib:
        lib.define("scaled(Tensor x, Tensor by) -> Tensor")
        lib.impl("scaled", scaled, "CompositeExplicitAutograd")
        lib.impl("scaled", lambda x, by: torch.empty_like(x), "Meta")
        yield


def made(rows: int, factors: int) -> RebuiltCandidate:
    module = Call(lambda x, by: torch.ops.rows.scaled(x.sin(), by).cos())
    return make_candidate(module, torch.randn(rows, 3), torch.ones(factors))


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    ("rows", "factors", "strays"),
    [(2, 2, False), (2, 1, True), (1, 2, False), (9, 1, False)],  # eager raises
)
def test_operator_with_an_out_of_bounds_read_is_named(
    rows: int, factors: int, strays: bool
) -> None:
    told = f"{SCALED} reads outside its arguments, unlike in the input program"
    run = made(rows, factors)
    assert find_out_of_bounds_operator(run, [SCALED]) == (told if strays else "")
    assert find_out_of_bounds_operator(run, ["aten.sin.default"]) == ""


# --- fake-kernel mismatches


@pytest.fixture(name="half", scope="module")
def _half() -> Iterator[None]:
    """An operator with strides of its own in long rows, and an empty result of one."""
    with torch.library._scoped_library("turned", "DEF") as lib:
        lib.define("half(Tensor x) -> Tensor")
        lib.impl("half", turned, "CompositeExplicitAutograd")
        lib.impl("half", torch.empty_like, "Meta")
        yield


def turned(x: torch.Tensor) -> torch.Tensor:
    if x.shape[-1] == 1:
        return x[..., :0].clone()
    if x.shape[-1] == 3:
        raise RuntimeError("three is too many")
    return x.t().contiguous().t() if x.shape[-1] > 4 else x.clone()


def made_mismatch(*shape: int) -> RebuiltCandidate:
    half = Call(lambda x: torch.ops.turned.half(x.sin()).cos())
    return make_candidate(half, torch.randn(shape))


STRIDES, SHAPE = "turned.half.default: strides", "turned.half.default: shape"


@pytest.mark.usefixtures("half")
@pytest.mark.parametrize(
    ("shape", "expected", "told"),
    [
        ((2, 8), STRIDES, ""),
        (
            (2, 8),
            SHAPE,
            f"an operator disagrees with its fake kernel in another way: {STRIDES}",
        ),
        (
            (2, 1),
            STRIDES,
            f"an operator disagrees with its fake kernel in another way: {SHAPE}",
        ),
        ((2, 1), SHAPE, ""),
        ((2, 4), STRIDES, f"no operator is wrong about its result; sought: {STRIDES}"),
        ((1, 8), STRIDES, f"no operator is wrong about its result; sought: {STRIDES}"),
        ((2, 3), STRIDES, ""),  # the check says that eager raises
    ],
)
def test_only_unexpected_fake_kernel_mismatches_are_reported(
    shape: tuple[int, ...], expected: str, told: str
) -> None:
    assert find_unexpected_mismatches(made_mismatch(*shape), [expected]) == told


# --- files that a check leaves


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a compiled program that triples, and writes code as AOTInductor does."""
    folder = tmp_path / "child"
    folder.mkdir()

    def build_once(*_: Any) -> str:
        (folder / "inductor").mkdir()
        (folder / "inductor/c1.wrapper.cpp").write_text("code")
        return "package"

    monkeypatch.setattr(aoti, "build_once", build_once)
    monkeypatch.setattr(aoti, "load", lambda _: lambda x: x * 3)
    return folder


def checked(folder: Path, **options: Any) -> Checked:
    run = make_candidate(Call(lambda x: x * 2), torch.ones(4))
    setup = Setup(str(folder))
    check = Check(setup, run, CheckOptions(**options), lambda _: None, folder)
    answer = check.perform()
    assert isinstance(answer, Checked)
    assert answer.difference
    return answer


@pytest.mark.parametrize(
    ("sought", "pages", "is_stored", "expected"),
    [
        ("crash", Guard.AFTER, False, ["eager", "compiled", "eager"]),
        ("crash", Guard.AFTER, True, ["compiled", "eager", "eager"]),
        ("crash", Guard.OFF, True, ["eager", "eager", "compiled"]),
        ("mismatch", Guard.AFTER, True, ["eager", "eager", "compiled"]),
    ],
)
def test_search_for_crashes_with_guard_pages_runs_eager_later(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    sought: str,
    pages: Guard,
    is_stored: bool,
    expected: list[str],
) -> None:
    """If the package is stored, eager passed in an earlier check of the program."""
    ran: list[str] = []

    class Calls(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: object, args: Any = (), kwargs: Any = None
        ) -> Any:
            real = type(args[0]) is Tensor and args[0].dtype is torch.float32
            if func is torch.ops.aten.mul.Tensor and real:
                ran.append({2: "eager", 3: "compiled"}[args[1]])
            return func(*args, **(kwargs or {}))

    monkeypatch.setattr(aoti, "build_once", lambda *_: "package")
    monkeypatch.setattr(aoti, "load", lambda _: lambda x: x * 3)
    package = tmp_path / "package.pt2"
    if is_stored:
        package.touch()
    with Calls():
        checked(tmp_path, sought=sought, guard_pages=pages, package=str(package))
    assert ran == expected


def test_generated_code_of_a_checked_program_is_kept(
    folder: Path, tmp_path: Path
) -> None:
    home = tmp_path / "left"
    checked(folder, leave=str(home))
    assert (home / ArtifactFile.SOURCES / "c1.wrapper.cpp").read_text() == "code"
    assert (home / ArtifactFile.LOG).exists()


def test_kernel_values_are_unknown_if_the_disk_is_too_small(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "MANY_BYTES", 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    left = tmp_path / "values.json"
    checked(folder, values=str(left))
    told = KernelValues.from_line(left.read_text())
    found = find_first_wrong(whole(chain("x", "mul")), told)
    assert not found.culprits
    assert found.unknown == (
        "which kernel is wrong: what each kernel is given and makes takes up to 0.1 GB "
        "of disk; 0.0 GB are free",
    )


# --- checked inputs


@pytest.mark.aoti
def test_kept_package_refuses_wrong_strides_with_sanity_checks(tmp_path: Path) -> None:
    exported = export(Call(lambda x: x.sin() + 1), (torch.rand(4, 6),))
    save_setup(tmp_path, exported, (torch.rand(6, 4).t(),))
    kept = CheckOptions(package=str(tmp_path / "kept.pt2"))
    guarded = CheckOptions(package=kept.package, sanity=True)
    with Server(model=tmp_path / "model.pt2", inputs=tmp_path / "inputs.pt") as server:
        seen = [
            classify_ending(server.ask(Request(CheckOriginal(), options))).signature
            for options in (kept, guarded)
        ]
    assert [s and s.kind for s in seen] == [Kind.MISMATCH, Kind.CHECK_INPUTS]
    assert "unmatched stride" in str(seen[1])


@pytest.mark.aoti
@pytest.mark.every_run
def test_check_with_torch_compile_does_not_run_the_package(folder: Path) -> None:
    assert checked(folder).difference
    options = CheckOptions(torch_compile=True)
    run = make_candidate(Call(lambda x: x * 2), torch.ones(4))
    answer = Check(Setup(str(folder)), run, options, lambda _: None, folder).perform()
    assert answer == Checked()


@pytest.mark.aoti
@pytest.mark.every_run
def test_second_run_with_torch_compile_reuses_the_compiled_graph(
    tmp_path: Path,
) -> None:
    exported = export(Call(lambda x: x.sin() + 1), (torch.rand(4, 6),))
    save_setup(tmp_path, exported, (torch.rand(4, 6),))
    second = CheckOptions(package=str(tmp_path / "whole.pt2"))
    first = replace(second, evidence=str(tmp_path / "evidence.json"))
    cache = tmp_path / "whole.pt2.cache" / "fxgraph"
    files = tmp_path / "model.pt2", tmp_path / "inputs.pt"
    graphs = []
    with Server(model=files[0], inputs=files[1], backend="inductor") as server:
        for options in (first, second):
            ending = server.ask(Request(CheckOriginal(), options))
            assert classify_ending(ending).passed
            graphs.append([path for path in cache.rglob("*") if path.is_file()])
    assert len(graphs[0]) == 1
    assert graphs[1] == graphs[0]
