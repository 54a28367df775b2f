"""Passes and lowerings are counted and left out as Inductor's own bisector would."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from unittest import mock

import pytest
import torch
from support.exported import Call
from torch import fx
from torch._inductor import compiler_bisector
from torch._inductor.compiler_bisector import CompilerBisector
from torch._inductor.exc import InductorError
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V

from shrinkfx.protocol.choices import Subsystem
from shrinkfx.protocol.files import Application
from shrinkfx.protocol.requests import LeaveOut, Setup
from shrinkfx.worker.explaining.compiler_decisions import (
    disable_applications,
    read_settings,
)

LOWERINGS = (Subsystem.LOWERINGS,)


def is_next_left_out(subsystem: str = "lowerings") -> bool:
    """Ask about the next one, as Inductor does where it comes to it."""
    return CompilerBisector.disable_subsystem("inductor", subsystem, lambda: "one")


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(0, None, "1111"), (2, None, "0011"), (2, 2, "0010"), (0, 1, "1100")],
)
def test_applications_are_disabled_by_number(
    first: int, last: int | None, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "applications"
    with disable_applications(LeaveOut(str(path), LOWERINGS, first, last)):
        said = "".join(str(int(is_next_left_out())) for _ in range(4))
        assert not is_next_left_out("joint_graph_passes")
        assert not is_next_left_out("cudagraphs")
        assert not CompilerBisector.disable_subsystem("aot_eager", "lowerings")
    assert said == expected
    assert not is_next_left_out()
    told = [Application.from_line(line) for line in path.read_text().splitlines()]
    numbers = [one.number for one in told if one.subsystem is Subsystem.LOWERINGS]
    assert numbers == [0, 1, 2, 3]
    assert told[-1] == Application(Subsystem.JOINT, 0, "one")


@pytest.mark.parametrize("most", [-1, 0, 2])
def test_numbers_match_those_of_the_bisector_environment_variables(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {
        "TORCH_BISECT_BACKEND": "inductor",
        "TORCH_BISECT_SUBSYSTEM": "lowerings",
        "TORCH_BISECT_MAX": str(most),
    }
    monkeypatch.setattr(CompilerBisector, "bisection_enabled", True)
    monkeypatch.setattr(compiler_bisector, "get_env_val", known.get)
    monkeypatch.setattr(compiler_bisector, "subsystem_call_counter", _counter())
    theirs = [is_next_left_out() for _ in range(5)]
    with disable_applications(LeaveOut(str(tmp_path / "file"), LOWERINGS, most + 1)):
        assert [is_next_left_out() for _ in range(5)] == theirs


def _counter() -> dict[str, int]:
    return dict.fromkeys(Subsystem, 0)


def lowered(folder: Path, *subsystems: Subsystem) -> list[Application]:
    """Lower a program, and list what there was to apply. Nothing is compiled."""
    exported = torch.export.export(
        Call(lambda x: torch.nn.functional.gelu(x.cumsum(0))), (torch.randn(4, 4),)
    )
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    path = folder / "applications"

    def stop(*_: object, **__: object) -> None:
        raise _Lowered

    with (
        mock.patch.object(GraphLowering, "codegen", stop),
        mock.patch.object(GraphLowering, "codegen_with_cpp_wrapper", stop),
        disable_applications(LeaveOut(str(path), subsystems)),
        contextlib.suppress(_Lowered, InductorError),
    ):
        package = str(folder / "model.pt2")
        torch._inductor.aoti_compile_and_package(exported, package_path=package)
    return [Application.from_line(line) for line in path.read_text().splitlines()]


class _Lowered(Exception):
    pass


def test_applications_are_recorded_with_names_and_origins(tmp_path: Path) -> None:
    told = lowered(tmp_path)
    passes = [one for one in told if one.subsystem is Subsystem.POST_GRAD]
    assert passes[0].name == "reorder_for_locality"
    lowerings = [one for one in told if one.subsystem is Subsystem.LOWERINGS]
    assert [one.number for one in lowerings] == [*range(len(lowerings))]
    by_name = {one.name: one.origin for one in lowerings}
    assert by_name["aten.cumsum.default"] == ""
    assert by_name["aten.erf.default"] == "aten.gelu.default"
    # Passes that are left out are named as well.
    again = lowered(tmp_path, Subsystem.POST_GRAD)
    assert [one for one in again if one.subsystem is Subsystem.POST_GRAD] == passes


def test_current_node_is_not_an_fx_node_between_lowerings() -> None:
    assert not isinstance(V.get_current_node(), fx.Node)


def test_settings_come_from_the_user_and_exist_in_this_version() -> None:
    setup = Setup("/nowhere", inductor={"freezing": True}, backend="aoti")
    wanted = {"freezing": False, "cpp.simdlen": 1, "no.such": 1, "nor_this": 2}
    found = read_settings(setup, wanted)
    assert found.values == {"freezing": True, "cpp.simdlen": None}
    assert (found.fixed, found.for_cuda) == ((), False)
    wanted = {"allow_buffer_reuse": True, "max_fusion_size": 1}
    setup = Setup("/nowhere", backend="interpreter")
    assert read_settings(setup, wanted).fixed == ("allow_buffer_reuse",)
