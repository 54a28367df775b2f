"""What the fast build gives is what AOTInductor's own gives."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import methodcaller
from pathlib import Path

import pytest
from support import cases
from support.cases import ROOT, expected_here

from repros.expected import read_expected
from shrinkfx.check.client.server import GUARDED_WORKER, WORKER, Server
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.failure.signature import Kind, is_until_target
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Built, Description
from shrinkfx.protocol.choices import Build, Guard, Step
from shrinkfx.protocol.requests import CheckOptions, Describe

EXPORT = str(ROOT / "repros" / "export.py")
CASES = {case.name: read_expected(case) for case in cases.CASES}
ON_CPU = [
    name
    for name, case in CASES.items()
    if case["device"] == "cpu" and not name.startswith("sweep_")
]
OPTIONS: Mapping[str, CheckOptions] = {
    "flaky_lgamma_check": CheckOptions(runs=20),
    "mismatch_random": CheckOptions(fallback_random=True),
    "mismatch_second_call": CheckOptions(calls=2),
}
STEADY = [
    name for name in ON_CPU if CASES[name]["kind"] != Kind.HANG and "flaky" not in name
]
CANDIDATES = 3
OF_UNWRITTEN_MEMORY = ("mismatch_strided_input",)
"""Cases that compute with whatever lies where nothing was written: it may be a nan."""

MEMORY_KINDS = (Kind.IMA, Kind.CRASH)

pytestmark = pytest.mark.aoti


@pytest.mark.parametrize("name", ON_CPU)
def test_case_has_the_same_failure_in_fast_and_stock_build(
    name: str, tmp_path: Path
) -> None:
    with ready_to_compile(name, tmp_path) as compiler:
        stock, fast = in_both_builds(compiler, lambda c: c.run_input_program()[0])
    assert stock.signature is not None
    assert is_until_target(CASES[name]["kind"], stock.signature)
    assert_alike(name, stock, fast)
    assert compiler.builds.to_json()["fallbacks"] == {}


@pytest.mark.parametrize("name", STEADY)
def test_candidates_have_the_same_failure_in_fast_and_stock_build(
    name: str, tmp_path: Path
) -> None:
    with ready_to_compile(name, tmp_path) as compiler:
        described = compiler.ask(Describe()).answer
        assert isinstance(described, Description)
        skeleton = Skeleton.from_json(json.loads(Path(described.skeleton).read_text()))
        candidates = list(
            parts_of(Candidate.from_skeleton(skeleton), random.Random(name))
        )
        for candidate in candidates:
            ask = methodcaller("candidate", candidate)
            assert_alike(name, *in_both_builds(compiler, ask))
    assert len(candidates) == CANDIDATES
    assert compiler.builds.to_json()["fallbacks"] == {}


def parts_of(whole: Candidate, chance: random.Random) -> Iterator[Candidate]:
    """Keep operators that follow each other, without some of them."""
    operators = whole.skeleton.operators
    for _ in range(CANDIDATES):
        size = chance.randint(2, max(2, len(operators) * 2 // 3))
        start = chance.randint(0, len(operators) - size)
        kept = set(operators[start : start + size])
        kept -= set(chance.sample(sorted(kept), size // 4))
        yield apply(whole, [Drop(frozenset(operators) - kept)])


def assert_alike(name: str, stock: Observation, fast: Observation) -> None:
    if name in OF_UNWRITTEN_MEMORY:
        stock, fast = without_value(stock), without_value(fast)
    assert fast.signature == stock.signature
    assert fast.invalid == stock.invalid
    hangs = stock.signature is not None and stock.signature.kind == Kind.HANG
    assert stock.unresolved == fast.unresolved == ("timeout in run" if hangs else "")
    if stock.signature and fast.signature:
        assert fast.signature.text.strip() == stock.signature.text.strip()


def without_value(seen: Observation) -> Observation:
    """Leave out which value was wrong, and that it was a nan."""
    failure = seen.signature
    if failure is None or failure.kind not in (Kind.MISMATCH, Kind.NAN):
        return seen
    return replace(seen, signature=replace(failure, kind=Kind.MISMATCH, text=""))


def in_both_builds(
    compiler: CheckClient, ask: Callable[[CheckClient], Observation]
) -> tuple[Observation, Observation]:
    stock = ask(compiler.with_options(build=Build.STOCK))
    return stock, ask(compiler.with_options(build=Build.FAST))


@contextlib.contextmanager
def ready_to_compile(name: str, folder: Path) -> Iterator[CheckClient]:
    case, model = expected_here(ROOT / "repros" / name), folder / "model.pt2"
    if "needs" in case and importlib.util.find_spec(case["needs"]) is None:
        pytest.skip(f"its model is of {case['needs']}: pip install -e '.[models]'")
    python("-W", "ignore", EXPORT, name, str(model))
    planted = [str(ROOT / "repros" / name / case["preload"])] if case["preload"] else []
    inputs = model.with_suffix(".inputs.pt")
    checked = {"AOTI_RUNTIME_CHECK_INPUTS": "1"}
    guarded = case["kind"] in MEMORY_KINDS
    with Server(
        model=model,
        inputs=inputs if inputs.exists() else None,
        preloads=planted,
        environment=checked if case["kind"] == Kind.CHECK_INPUTS else {},
        command=GUARDED_WORKER if guarded else WORKER,
    ) as server:
        timeout_s = 60.0 if case["kind"] == Kind.HANG else 600.0
        compiler = CheckClient(
            server, Limits(timeout_s, 16 << 30), OPTIONS.get(name, CheckOptions())
        )
        if guarded:
            compiler = compiler.with_options(guard_pages=Guard.AFTER)
        yield compiler


PROGRAM = """
import json, sys
from pathlib import Path
import torch
from shrinkfx.protocol.choices import Build
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.aoti import fast_build

if sys.argv[2:]:
    fast_build.INSTANCES = Path(sys.argv[2])

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.softmax(x.relu() @ y, 0) + x.shape[0], torch.sort(y.tanh())[1]

args = torch.randn(5, 4), torch.randn(4, 4)
sizes = {"x": {0: torch.export.Dim("rows", min=2)}, "y": {}}
exported = torch.export.export(Model(), args, dynamic_shapes=sizes)
results = []
for build in Build:
    folder = Path(sys.argv[1]) / build
    folder.mkdir()
    package = aoti.build_once(exported, folder, {}, CheckOptions(build=build))
    results.append(aoti.load(package)(*args))
for fast, stock in zip(*results, strict=True):
    assert torch.equal(fast, stock)
print((Path(sys.argv[1]) / "fast" / "built.json").read_text())
assert not (Path(sys.argv[1]) / "stock" / "built.json").exists()
"""


@pytest.mark.every_run
def test_results_are_equal_in_fast_and_stock_build(tmp_path: Path) -> None:
    said = python("-W", "ignore", "-c", PROGRAM, str(tmp_path))
    assert Built.from_line(said) == Built(Build.FAST, Step.LINK)


EXPORTED = """
import sys
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.relu() @ x

torch.export.save(torch.export.export(Model(), (torch.ones(3, 3),)), sys.argv[1])
"""


def test_two_runs_share_one_runtime_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, cache = tmp_path / "model.pt2", tmp_path / "cache"
    python("-W", "ignore", "-c", EXPORTED, str(model))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for _ in range(2):
        with Server(model=model) as server:
            fast = CheckOptions(build=Build.FAST)
            compiler = CheckClient(server, Limits(600.0, 16 << 30), fast)
            assert compiler.run_input_program()[0].passed
            assert compiler.builds.to_json()["fallbacks"] == {}
    assert len(list(cache.glob("shrinkfx/aoti-runtime/*.o"))) == 1


def test_fast_build_falls_back_if_an_instance_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = tmp_path / "nothing.cpp"
    nothing.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    said = python("-W", "ignore", "-c", PROGRAM, str(tmp_path), str(nothing))
    assert json.loads(said)["fallback"].startswith("undefined: ")


def python(*arguments: str) -> str:
    """Run Python on ``arguments`` and return what it prints."""
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, timeout=900, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout
