"""What a checked run says besides its findings."""

from __future__ import annotations

import pytest

from shrinkfx.protocol.choices import Probe
from shrinkfx.worker.forkserver.supervise import describe_error
from shrinkfx.worker.interpreter.backend import check_accesses
from shrinkfx.worker.interpreter.findings import Fault, KernelFinding, Report
from shrinkfx.worker.interpreter.memory_checks import CHECKER


def test_report_notes_kernels_that_were_only_partly_run() -> None:
    def strays() -> None:
        with check_accesses(Probe.REAL, {}):
            CHECKER.unseen.append("k: only 40 of 99999 programs ran")
            raise Report([KernelFinding(Probe.REAL, Fault.LOAD, "k")])

    with pytest.raises(Report) as caught:
        strays()
    assert describe_error(caught.value).notes == ("k: only 40 of 99999 programs ran",)
    assert describe_error(ValueError("no")).notes == ()
