"""A program whose nodes have other names: nothing is told by names, and why is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.compiled_program_view import REASON_FILE
from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.explaining.origins import restore_known_names
from shrinkfx.worker.graph.rebuild import RebuiltCandidate, RecoveredNames
from shrinkfx.worker.model import Inputs

WHY = "it then calls other operators"


def run(names: RecoveredNames | None) -> RebuiltCandidate:
    inputs = Inputs((torch.ones(3),), {})
    exported = torch.export.export(torch.nn.ReLU(), inputs.args)
    return RebuiltCandidate(exported, inputs, inputs, names=names)


@pytest.mark.parametrize(
    ("form", "how"),
    [
        (CandidateForm.PROGRAM, "the program must be exported again"),
        (CandidateForm.SOURCE, "its printed source was run"),
    ],
)
def test_reason_for_unknown_names_is_written_to_the_results(
    tmp_path: Path, form: CandidateForm, how: str
) -> None:
    values, evidence = tmp_path / "values.json", str(tmp_path / "evidence.json")
    asked = CheckOptions(
        form=form, compiled_view=str(tmp_path), values=str(values), evidence=evidence
    )
    lost = run(RecoveredNames(why_not=WHY))
    assert restore_known_names(lost, asked) == (lost, CheckOptions(form=form))
    for why in (
        (tmp_path / REASON_FILE).read_text(),
        KernelValues.from_line(values.read_text()).unknown,
    ):
        assert why.startswith(how)
        assert why.endswith(WHY)
    assert not Path(evidence).exists()


def test_known_names_are_restored(tmp_path: Path) -> None:
    asked = CheckOptions(compiled_view=str(tmp_path))
    named, options = restore_known_names(run(RecoveredNames({"relu": "relu_7"})), asked)
    assert options == asked
    assert "relu_7" in {node.name for node in named.exported.graph.nodes}
    assert named.names is None


@pytest.mark.parametrize(
    "names", [None, RecoveredNames({"relu": "relu_7"}), RecoveredNames(why_not=WHY)]
)
def test_names_are_not_restored_if_no_result_needs_them(
    tmp_path: Path, names: RecoveredNames | None
) -> None:
    made = run(names)
    assert restore_known_names(made, CheckOptions()) == (made, CheckOptions())
    assert not list(tmp_path.iterdir())
