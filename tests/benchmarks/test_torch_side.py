"""PyTorch's minifier in the benchmark: it can refuse, and it can succeed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tools import Case, Ran
from torch_minifier import write_launcher
from torch_side import Outcome, ask, attempts, is_the_failure, with_pytorch

from shrinkfx.failure.signature import Kind

NOWHERE = Path("model.pt2")
WRONG = Ran(1, 1.0, 1.0, "...debug_utils.AccuracyError: Bad accuracy detected")
CHEAP = """
from torch._inductor import config

config.aot_inductor.precompile_headers = config.cpp_cache_precompile_headers = False
config.aot_inductor.compile_wrapper_opt_level = "O0"
"""
"""Headers would take longer to precompile than all these tests' programs."""

PLANTED = """
import torch
from torch._inductor.lowering import lowerings

sinh, mul = torch.ops.aten.sinh.default, torch.ops.aten.mul.Tensor
right = lowerings[sinh]
lowerings[sinh] = lambda x: lowerings[mul](right(x), 1.5)
"""


class Small(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sinh(x.relu())


def small(folder: Path) -> Path:
    program = torch.export.export(Small(), (torch.ones(8),))
    torch.export.save(program, folder / "small.pt2")
    return folder / "small.pt2"


def wrong(folder: Path) -> Case:
    preload = folder / "planted.py"
    preload.write_text(CHEAP + PLANTED)
    return Case("wrong", small(folder), Kind.MISMATCH, preloads=(str(preload),))


def test_launcher_of_pytorch_enables_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a package no program can be run, and each of them seems to fail."""
    monkeypatch.chdir(tmp_path)
    with torch._dynamo.config.patch(debug_dir_root=str(tmp_path)):
        launcher = Path(write_launcher(torch.export.load(small(tmp_path))))
    said = launcher.read_text()
    assert launcher.name == "minifier_launcher.py"
    assert "config_patches={'aot_inductor.package': True}\n" in said
    assert "with torch.no_grad():\n" in said
    assert "check_str=None" in said


def test_peer_is_run_with_and_without_the_failure_message() -> None:
    case = Case("", NOWHERE, Kind.ASSERT, "index out of bounds: 0 <= tmp")
    assert attempts(case) == [("--check-str", case.message), ()]


def test_peer_gets_no_regular_expression() -> None:
    assert attempts(Case("", NOWHERE, Kind.ASSERT, r"tmp\d+")) == [()]


def test_peer_gets_the_message_without_the_exception_type() -> None:
    case = Case("", NOWHERE, Kind.COMPILE_ERROR, "^InductorError: AssertionError:$")
    assert attempts(case)[0] == ("--check-str", "AssertionError:")


def test_peer_is_run_with_accuracy_then_strict_accuracy() -> None:
    told = ("--check-str", "Bad accuracy detected")
    accuracy = [("--accuracy", *told), ("--strict-accuracy", *told)]
    assert attempts(Case("", NOWHERE, Kind.NAN)) == accuracy


def test_peer_is_run_with_accuracy_last_for_out_of_bounds_access() -> None:
    assert attempts(Case("", NOWHERE, Kind.IMA)) == [(), ("--accuracy",)]


def test_peer_is_run_several_times_for_a_flaky_failure() -> None:
    case = Case("", NOWHERE, Kind.ASSERT, "table", tries=3)
    assert attempts(case) == [("--check-str", "table")] * 3 + [()]


@pytest.mark.parametrize("said", ["run_repro(accuracy='accuracy')\nKeyError", ""])
def test_different_error_of_a_repro_is_not_a_mismatch(said: str) -> None:
    case = Case("", NOWHERE, Kind.MISMATCH)
    assert is_the_failure(case, WRONG)
    assert not is_the_failure(case, Ran(1, 1.0, 1.0, said))


def test_message_with_a_module_prefix_matches() -> None:
    case = Case("", NOWHERE, Kind.COMPILE_ERROR, "^InductorError: AssertionError:$")
    said = "torch._inductor.exc.InductorError: AssertionError:\n"
    assert is_the_failure(case, Ran(1, 1.0, 1.0, said))
    assert not is_the_failure(case, Ran(0, 1.0, 1.0, said))


def test_cut_off_repro_is_not_a_crash() -> None:
    case = Case("", NOWHERE, Kind.CRASH)
    assert is_the_failure(case, Ran(-11, 1.0, 1.0, ""))
    assert not is_the_failure(case, Ran(-9, 1.0, 1.0, "", cut=True))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose caches the first test fills."""
    return tmp_path_factory.mktemp("peer")


@pytest.mark.aoti
def test_peer_refuses_a_healthy_program(shared: Path) -> None:
    preload = shared / "cheap.py"
    preload.write_text(CHEAP)
    case = Case("healthy", small(shared), Kind.EXCEPTION, preloads=(str(preload),))
    asked = ask(case, shared / "healthy" / "pytorch", 600)
    assert asked.outcome is Outcome.REFUSED
    error = (
        "RuntimeError" if torch.__version__ < "2.15" else "MinifierSanityCheckFailed"
    )
    assert f"{error}: Input graph did not fail the tester" in asked.ran.said
    assert (asked.checks, asked.left) == (1, {})


@pytest.mark.aoti
def test_peer_reduces_a_mismatch_to_the_culprit(
    shared: Path,
) -> None:
    asked = ask(wrong(shared), shared / "wrong" / "pytorch", 600)
    assert asked.ran.code == 0
    assert asked.left["operators"] == 1


@pytest.mark.aoti
def test_reduced_program_of_the_peer_fails(shared: Path) -> None:
    result = with_pytorch(wrong(shared), shared / "judged" / "pytorch", 600)
    assert (result.outcome, result.operators) == (Outcome.REDUCED, 1)
    assert result.refails
    assert not result.self_contained  # it loads the program from where it was
