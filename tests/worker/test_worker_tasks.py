"""Tasks of a worker: the report on its environment, and written results."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from support.exported import Call, ask, describe_candidate, export, save_setup

from shrinkfx.check.client.server import Server
from shrinkfx.errors import LoadError
from shrinkfx.protocol.answers import Printed, Row, Status
from shrinkfx.protocol.choices import Backend, CandidateForm
from shrinkfx.protocol.requests import (
    CheckOptions,
    ExportSample,
    WriteCandidate,
)
from shrinkfx.versions import RANGE
from shrinkfx.worker import tasks, worker_state
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.loading.import_advice import require_triton
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.printing import module as printing
from shrinkfx.worker.printing.module import export_source
from shrinkfx.worker.private_api.feature import Feature
from shrinkfx.worker.tasks import export_sample, inspect

# --- environment


def rows() -> dict[str, Row]:
    return {row.part: row for row in inspect().rows}


def test_sample_program_has_two_operators(tmp_path: Path) -> None:
    path = tmp_path / "sample.pt2"
    export_sample(ExportSample(str(path)), lambda stage: None)
    program = torch.export.load(path)
    calls = [n.target for n in program.graph.nodes if n.op == "call_function"]
    assert calls == [torch.ops.aten.relu.default, torch.ops.aten.add.Tensor]
    assert program.example_inputs is not None


def test_each_part_has_one_row_and_the_gpu_row_agrees_with_torch() -> None:
    found = rows()
    names = "private names of PyTorch"
    assert [*found] == ["Triton", "ptxas", "GPU", "compute-sanitizer", names]
    assert found[names].works
    assert found["GPU"].works is torch.cuda.is_available()
    for row in found.values():
        assert bool(row.cost and row.remedy) is not row.works


def test_feature_with_a_missing_private_name_is_reported_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feature = Feature("engine", {"gone": "torch:gone_now"}, without="it does not move")
    monkeypatch.setattr(tasks, "FEATURES", (feature,))
    row = rows()["private names of PyTorch"]
    assert row.status is Status.MISSING
    assert row.detail.endswith("has no torch.gone_now")
    assert row.cost == "It does not move."
    assert row.remedy == f"Install torch {RANGE}."


def test_absent_triton_is_reported_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    found = rows()
    assert found["Triton"].status is Status.MISSING
    assert found["ptxas"] == Row(
        "ptxas", Status.NOT_TRIED, "needs Triton: see that row"
    )
    with pytest.raises(LoadError, match="Triton: CUDA programs need it, and importing"):
        require_triton()


class _NoPtxas:
    @property
    def ptxas(self) -> None:
        raise RuntimeError("Cannot find ptxas")


def test_absent_ptxas_is_reported_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = ModuleType("triton")
    triton.__dict__.update(
        __version__="3.9.9", knobs=SimpleNamespace(nvidia=_NoPtxas())
    )
    monkeypatch.setitem(sys.modules, "triton", triton)
    found = rows()
    assert found["Triton"].detail == "3.9.9"
    assert found["ptxas"].status is Status.MISSING
    assert found["ptxas"].detail == "RuntimeError: Cannot find ptxas"
    assert "TRITON_PTXAS_PATH" in found["ptxas"].remedy
    with pytest.raises(LoadError, match="ptxas: CUDA programs need it: Cannot find"):
        require_triton()


def test_triton_that_does_not_report_its_ptxas_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    triton = ModuleType("triton")
    triton.__dict__["__version__"] = "4.0"
    monkeypatch.setitem(sys.modules, "triton", triton)
    require_triton()
    assert rows()["ptxas"].works


def test_failure_of_code_generation_does_not_blame_the_file(
    tmp_path: Path,
) -> None:
    model, planted = tmp_path / "model.pt2", tmp_path / "planted.py"
    export_sample(ExportSample(str(model)), lambda stage: None)
    planted.write_text(
        "import torch.export\n"
        "def export(*args, **kwargs): raise TypeError('planted')\n"
        "torch.export.export = export\n"
    )
    with pytest.raises(LoadError) as refused:
        Server(
            model=model,
            preloads=[str(planted)],
            device="cuda",
            backend=Backend.INTERPRETER,
        )
    said = str(refused.value)
    assert said.startswith("the worker: cannot start: TypeError: planted")
    assert "torch.export.load" not in said
    assert "the output of shrinkfx doctor" in said


# --- written results


@pytest.mark.parametrize(
    ("dynamic", "form", "times"),
    [
        (False, CandidateForm.PROGRAM, 0),
        (False, CandidateForm.SOURCE, 1),
        (True, CandidateForm.PROGRAM, 1),
    ],
)
def test_source_is_reexported_for_writing_only_if_dims_are_dynamic(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dynamic: bool,
    form: CandidateForm,
    times: int,
) -> None:
    shapes = ({0: torch.export.Dim("batch", min=2)},) if dynamic else None
    exported = export(
        Call(lambda x: x.tanh() + 1), torch.randn(3, 4), dynamic_shapes=shapes
    )
    setup = save_setup(tmp_path, exported)
    worker, exports = tasks.Worker(setup, 1, load(setup)), []

    def noted(built: RebuiltCandidate) -> Any:
        exports.append(built)
        return export_source(built)

    for module in (printing, worker_state):
        monkeypatch.setattr(module, "export_source", noted)

    options = CheckOptions(form=form)
    paths = str(tmp_path / "one.pt2"), str(tmp_path / "one.pt")
    whole = describe_candidate(worker, tmp_path, options).to_json()
    answer = ask(worker, tmp_path, WriteCandidate(whole, *paths), options)
    assert isinstance(answer, Printed)
    assert (answer.unprintable, len(exports)) == ("", times)
    assert answer.source is not None
    assert answer.source.body
    assert answer.dynamic_dims == int(dynamic)
