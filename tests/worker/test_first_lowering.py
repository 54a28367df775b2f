"""The first lowering of a server: when it is made, and what it leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.exported import Call

from shrinkfx.check.client.server import Server
from shrinkfx.protocol.answers import Answer, Built, Checked, Ending, Raised, Stopped
from shrinkfx.protocol.choices import Backend, Build, Step
from shrinkfx.protocol.files import LOWERING
from shrinkfx.protocol.requests import (
    CheckOptions,
    CheckOriginal,
    Describe,
    Request,
    RunScript,
)
from shrinkfx.worker.aoti.first_lowering import FirstLowering
from shrinkfx.worker.model import Inputs, Program

ROOT = Path(__file__).parents[2]
CHECK = Request(CheckOriginal())
PASSES = Ending("exit", stage="done")


def program(device: str = "cpu") -> Program:
    inputs = (torch.ones(3, 5, device=device),)
    exported = torch.export.export(Call(lambda x: (x * torch.tanh(x)).mean(0)), inputs)
    return Program(exported, exported, Inputs(inputs, {}), Inputs(inputs, {}))


@pytest.fixture(name="lowered")
def _lowered(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Collect the folders of first lowerings instead of making them."""
    lowered: list[Path] = []
    name = "shrinkfx.worker.aoti.first_lowering.lower_two_operators"
    monkeypatch.setattr(name, lambda folder, _: lowered.append(folder))
    return lowered


@pytest.mark.parametrize(
    ("ending", "survived"),
    [
        (PASSES, True),
        (Ending("exit", stage="compile", answer=Raised("E", "planted")), True),
        (Ending("exit", stage="compile", answer=Stopped("lowering passes")), True),
        (Ending("signal", 11, stage="run"), True),
        (Ending("timeout", stage="compile", built=Built(Build.FAST, Step.LINK)), True),
        (Ending("signal", 11, stage="compile"), False),
        (Ending("exit", 1, stage="compile"), False),
        (
            Ending("timeout", stage="compile", built=Built(Build.FAST, Step.LOWERING)),
            False,
        ),
        (Ending("exit", stage="rebuild"), False),
        (Ending("signal", 11, stage="eager"), False),
    ],
)
def test_first_lowering_runs_after_a_child_survives_lowering(
    tmp_path: Path, lowered: list[Path], ending: Ending, survived: bool
) -> None:
    first = FirstLowering(program(), tmp_path, Backend.AOTI)
    first.lower_before(CHECK)
    first.note_ending(CHECK, ending)
    assert lowered == []
    for _ in range(2):
        first.lower_before(CHECK)
    assert len(lowered) == survived


@pytest.mark.parametrize("stage", ["compile", "run"])
def test_torch_compile_is_used_only_after_a_child_survives_the_cpp_compiler(
    tmp_path: Path, lowered: list[Path], stage: str
) -> None:
    first = FirstLowering(program(), tmp_path, Backend.INDUCTOR)
    first.note_ending(CHECK, Ending("exit", stage=stage, answer=Raised("E", "planted")))
    first.lower_before(CHECK)
    assert len(lowered) == (stage == "run")


@pytest.mark.parametrize(
    "request_",
    [
        Request(Describe()),
        Request(RunScript("repro.py", ".")),
        replace(CHECK, fresh=True),
        replace(CHECK, options=CheckOptions(package=__file__)),
    ],
)
def test_first_lowering_is_skipped_for_requests_without_lowering(
    tmp_path: Path, lowered: list[Path], request_: Request
) -> None:
    first = FirstLowering(program(), tmp_path, Backend.AOTI)
    first.note_ending(CHECK, PASSES)
    first.lower_before(request_)
    assert lowered == []


def test_surviving_another_request_does_not_allow_first_lowering(
    tmp_path: Path, lowered: list[Path]
) -> None:
    first = FirstLowering(program(), tmp_path, Backend.AOTI)
    first.note_ending(Request(Describe()), PASSES)
    first.lower_before(CHECK)
    assert lowered == []


@pytest.mark.parametrize("device", ["meta", None])
def test_first_lowering_is_skipped_for_programs_not_on_the_cpu(
    tmp_path: Path, lowered: list[Path], device: str | None
) -> None:
    loaded = program(device) if device else None
    first = FirstLowering(loaded, tmp_path, Backend.AOTI)
    first.note_ending(CHECK, PASSES)
    first.lower_before(CHECK)
    assert lowered == []


def test_marker_file_exists_only_during_first_lowering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[bool] = []
    name = "shrinkfx.worker.aoti.first_lowering.lower_two_operators"
    at_work = tmp_path / LOWERING
    monkeypatch.setattr(name, lambda *_: there.append(at_work.exists()))
    first = FirstLowering(program(), tmp_path, Backend.AOTI)
    first.note_ending(CHECK, PASSES)
    first.lower_before(CHECK)
    assert there == [True]
    assert not at_work.exists()  # it lives


def test_failing_first_lowering_does_not_end_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(folder: Path, backend: str) -> None:
        raise ValueError("planted")

    name = "shrinkfx.worker.aoti.first_lowering.lower_two_operators"
    monkeypatch.setattr(name, fail)
    first = FirstLowering(program(), tmp_path, Backend.AOTI)
    first.note_ending(CHECK, PASSES)
    for _ in range(2):
        first.lower_before(CHECK)
    assert capsys.readouterr().err.count("ValueError: planted") == 1


STATE = """
import copy, os, random, sys, tempfile, torch, tqdm
from pathlib import Path
import torch._inductor.config
from torch._dynamo.utils import counters
from shrinkfx.worker.aoti import backend
from shrinkfx.worker.aoti.first_lowering import lower_two_operators

def state():
    return {
        "variables": dict(os.environ),
        "folders": (os.getcwd(), tempfile.tempdir),
        "random": (random.getstate(), torch.get_rng_state().tolist()),
        "options": torch._inductor.config.shallow_copy_dict(),
        "counters": copy.deepcopy(counters),
        "threads": (tqdm.tqdm.monitor_interval, os.listdir("/proc/self/task")),
    }

torch.set_num_threads(1)
backend.warm_up()
random.seed(1)
before, modules = state(), len(sys.modules)
lower_two_operators(Path(sys.argv[1]), sys.argv[2])
after = state()
changed = [name for name in before if after[name] != before[name]]
sys.exit(", ".join(changed) or len(sys.modules) < modules + 50)
"""


@pytest.mark.aoti
@pytest.mark.every_run
@pytest.mark.parametrize("backend", [Backend.AOTI, Backend.INDUCTOR])
def test_first_lowering_leaves_process_state_unchanged(
    tmp_path: Path, backend: str
) -> None:
    environment = {"OPENBLAS_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    folder = tmp_path / "first"
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STATE, str(folder), backend],
        check=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


KEEPER = """
from pathlib import Path
from torch._inductor.codecache import AotCodeCompiler
from torch._inductor.graph import GraphLowering

stock = AotCodeCompiler.compile.__func__

def keep(text):
    number = len([*Path({folder!r}).iterdir()])
    lines = [line for line in text.split("\\n") if "AOT ID" not in line]  # a counter
    Path({folder!r}, str(number)).write_text("\\n".join(lines))

def compile(cls, graph, wrapper, kernels, *rest, **options):
    keep(wrapper + kernels)
    return stock(cls, graph, wrapper, kernels, *rest, **options)

AotCodeCompiler.compile = classmethod(compile)
GraphLowering.save_output_code = staticmethod(keep)  # torch.compile's
"""


@pytest.mark.aoti
@pytest.mark.every_run
@pytest.mark.parametrize("backend", [Backend.AOTI, Backend.INDUCTOR])
def test_generated_code_is_the_same_after_first_lowering(
    tmp_path: Path, backend: str
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    preload = tmp_path / "keeper.py"
    preload.write_text(KEEPER.format(folder=str(kept)))
    torch.export.save(program().original, tmp_path / "model.pt2")
    options = CheckOptions(build=Build.FAST, only=Step.LOWERING)
    answer: type[Answer] = Stopped
    if backend == Backend.INDUCTOR:
        options, answer = CheckOptions(), Checked
    asked = Request(CheckOriginal(), options)
    model = tmp_path / "model.pt2"
    with Server(model=model, preloads=[str(preload)], backend=backend) as server:
        endings = [server.ask(asked) for _ in range(2)]
    assert [type(ending.answer) for ending in endings] == [answer, answer]
    alone, of_two_operators, after = (
        path.read_text() for path in sorted(kept.iterdir())
    )
    assert "tanh" in alone
    assert "sin" in of_two_operators
    assert ("async_compile" in of_two_operators) == (backend == Backend.INDUCTOR)
    assert after == alone
