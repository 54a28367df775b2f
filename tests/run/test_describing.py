"""A program that eager itself does not survive is told, with what to do."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.doubles import FakeServer

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import LoadError
from shrinkfx.events import ignore_event
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending
from shrinkfx.run.context import RunContext
from shrinkfx.run.observe import describe_program

LOG = """\
Current thread 0x1 (most recent call first):
  File "/home/me/ops.py", line 7 in settle
  File "/env/site-packages/shrinkfx/worker/tasks.py", line 93 in perform
"""


@pytest.mark.parametrize(
    ("ending", "did", "advice"),
    [
        (
            Ending("timeout", log=LOG, operator="my.settle (settle)"),
            "eager did not end in 20 s in my.settle (settle), before anything",
            "the program hangs without AOTInductor, too, so there is nothing to "
            "reduce: fix my.settle (settle) or its inputs; if it is only slow: "
            "--timeout SECONDS",
        ),
        (
            Ending("signal", signal.SIGSEGV, log=LOG, operator="my.settle (settle)"),
            "eager died of SIGSEGV in my.settle (settle), before anything",
            "the program dies without AOTInductor, too, so there is nothing to reduce",
        ),
        (
            Ending("signal", signal.SIGABRT),
            "eager died of SIGABRT, before anything",
            "fix the program or its inputs",
        ),
        (Ending("memory", log="Killed"), "eager ended with memory 0", "Killed"),
    ],
)
def test_hang_or_crash_in_eager_mode_is_reported_as_a_load_error(
    tmp_path: Path, ending: Ending, did: str, advice: str
) -> None:
    context = RunContext(Options(Path("model.pt2")), tmp_path, ignore_event)
    client = CheckClient(FakeServer(lambda _: ending), Limits(20.0, 1 << 30))
    with pytest.raises(LoadError) as caught:
        describe_program(context, client)
    said = str(caught.value)
    assert said.startswith(f"model.pt2: {did}")
    assert advice in said
    if ending.log == LOG:
        assert '\n  File "/home/me/ops.py", line 7 in settle\n' in said
        assert "shrinkfx/worker" not in said
