"""What a checked run says besides its findings."""

from __future__ import annotations

import pytest

from shrinkfx.protocol.choices import Probe
from shrinkfx.worker.backends.checked import checked
from shrinkfx.worker.memory.bounds import CHECKER
from shrinkfx.worker.memory.findings import Fault, Finding, Report
from shrinkfx.worker.supervise import describe_error


def test_report_notes_the_grids_that_were_sampled() -> None:
    def strays() -> None:
        with checked(Probe.REAL, {}):
            CHECKER.sampled.append("k: 40 of 99999 programs")
            raise Report([Finding(Probe.REAL, Fault.LOAD, "k")])

    with pytest.raises(Report) as caught:
        strays()
    assert describe_error(caught.value)["notes"] == ["k: 40 of 99999 programs"]
    assert "notes" not in describe_error(ValueError("no"))
