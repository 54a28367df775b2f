"""A program whose nodes have other names: nothing is told by names, and why is."""

from __future__ import annotations

from pathlib import Path

import pytest

from shrinkfx.protocol.anatomy import UNTOLD
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.explaining.untold import untold


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (CandidateForm.PROGRAM, "it has to be exported anew"),
        (CandidateForm.SOURCE, "its printed source was asked"),
    ],
)
def test_word_is_left_of_why_nothing_is_told(
    tmp_path: Path, form: CandidateForm, why: str
) -> None:
    values, evidence = tmp_path / "values.json", str(tmp_path / "evidence.json")
    asked = CheckOptions(
        form=form, anatomy=str(tmp_path), values=str(values), evidence=evidence
    )
    assert untold(asked) == CheckOptions(form=form)
    assert (tmp_path / UNTOLD).read_text().startswith(why)
    assert KernelValues.from_line(values.read_text()).unknown.startswith(why)
    assert not Path(evidence).exists()


def test_nothing_is_left_where_nobody_asked(tmp_path: Path) -> None:
    assert untold(CheckOptions()) == CheckOptions()
    assert not list(tmp_path.iterdir())
