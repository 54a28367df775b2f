"""Files that are broken or armed: each is answered, and none runs code unforeseen."""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support import damaged
from support.torch_versions import since_2_13
from torch import Tensor, nn
from torch.export import Dim

from shrinkfx.check.preflight import require_inputs, require_program
from shrinkfx.cli.main import main
from shrinkfx.errors import LoadError
from shrinkfx.system.sandbox import Sandbox, find_problem

LOADING = Path(__file__).with_name("load_each.py")
SEED = 7
WOULD_UNPACK = "would unpack"
"""Reason for which a file is refused though torch would read it."""


class Whole(nn.Module):
    """One of each thing that an archive holds."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("shift", torch.ones(3))
        self.table = torch.arange(3.0)

    def forward(self, x: Tensor, *, scale: Tensor) -> Tensor:
        wide = torch.cat([x, x])
        narrow: Tensor = self.linear(wide)[::2] + self.shift + self.table
        return narrow * scale


def save(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@functools.cache
def good_program() -> bytes:
    torch.manual_seed(0)
    example = (torch.randn(8, 4),), {"scale": torch.ones(3)}
    shapes = {"x": {0: Dim("n", min=2, max=64)}, "scale": None}
    exported = torch.export.export(Whole(), *example, dynamic_shapes=shapes)
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    return damaged.archive(
        {
            f"model/{name.partition('/')[2]}": data
            for name, data in damaged.members(buffer.getvalue()).items()
        }
    )


def good_inputs() -> bytes:
    return save({"args": (torch.randn(8, 4),), "kwargs": {"scale": torch.ones(3)}})


def armed_programs(canary: str) -> damaged.Made:
    yield from damaged.armed_programs(good_program(), save, canary)
    yield from damaged.armed_before_2_8(good_program(), save, canary)
    yield from damaged.armed(good_program(), canary)


def armed_inputs(canary: str) -> damaged.Made:
    return damaged.armed_pickles(save, canary)


def programs(canary: str) -> damaged.Made:
    rng, good = random.Random(SEED), good_program()
    yield "good", good
    yield from damaged.truncated(good, rng, 15)
    yield from damaged.flipped(good, rng, 30)
    yield from damaged.flipped_inside(good, rng, 20)
    yield from damaged.rearranged(good, rng, 8)
    yield from damaged.odd_values(good, rng, 40)
    yield from damaged.wrong_kinds(rng)
    yield "tensors", good_inputs()
    yield from damaged.armed_programs(good, save, canary)
    yield from damaged.armed_before_2_8(good, save, canary)
    yield from damaged.scripted(good, save, canary)


def inputs(canary: str) -> damaged.Made:
    rng, good = random.Random(SEED), good_inputs()
    yield "good", good
    yield from damaged.truncated(good, rng, 10)
    yield from damaged.flipped(good, rng, 15)
    yield from damaged.flipped_inside(good, rng, 15)
    yield from damaged.rearranged(good, rng, 3)
    yield from damaged.wrong_kinds(rng)
    yield "program", good_program()
    yield from damaged.armed_pickles(save, canary)


@dataclass(frozen=True)
class Answered:
    """What became of a file: what the parent said of it, and what the worker."""

    name: str
    refused: str
    said: dict[str, Any] | None
    status: int | None
    printed: str


def files(folder: Path, made: damaged.Made, suffix: str) -> Iterator[Path]:
    folder.mkdir()
    for name, data in made:
        path = folder / f"{name}{suffix}"
        path.write_bytes(data)
        yield path


def refusal(check: Callable[[Path], None], path: Path) -> str:
    try:
        check(path)
    except LoadError as error:
        return str(error)
    return ""


def load_each(
    folder: Path, jobs: Sequence[dict[str, Any]], box: Sandbox | None = None
) -> list[dict[str, Any]]:
    folder.mkdir()
    command = [sys.executable, str(LOADING), str(folder)]
    done = subprocess.run(
        box.wrap_command(command, folder.parent) if box else command,
        cwd=folder.parent,
        input="".join(f"{json.dumps(job)}\n" for job in jobs),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(LOADING.parents[2])},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def answers(folder: Path, canary: Path) -> list[Answered]:
    good = folder / "good.pt2"
    good.write_bytes(good_program())
    checks: list[str] = []
    jobs: list[dict[str, Any]] = []
    names: list[str] = []
    for path in files(folder / "programs", programs(str(canary)), ".pt2"):
        checks.append(refusal(require_program, path))
        jobs.append({"model": str(path)})
        names.append(f"program {path.stem}")
    for path in files(folder / "inputs", inputs(str(canary)), ".pt"):
        checks.append(refusal(require_inputs, path))
        jobs.append({"model": str(good), "inputs": str(path)})
        names.append(f"inputs {path.stem}")
    loaded = load_each(folder / "loaded", jobs)
    found = []
    for number, (name, refused, each) in enumerate(
        zip(names, checks, loaded, strict=True)
    ):
        said = json.loads(each["answer"]) if each["answer"] else None
        printed = (folder / "loaded" / f"{number}.stderr").read_text()
        found.append(Answered(name, refused, said, each["status"], printed))
    return found


def test_two_hundred_bad_files_get_an_answer_and_run_no_code(
    tmp_path: Path, survivors: Callable[[], list[str]]
) -> None:
    canary = tmp_path / "executed"
    found = answers(tmp_path, canary)
    assert len(found) >= 200
    for each in found:
        assert each.status == 0, each
        assert each.said is not None, each
        assert "Traceback" not in each.printed, each
        advice = each.said["advice"]
        text = each.refused + each.said["error"] + advice
        assert "Traceback" not in text, each
        assert "\n" not in each.refused.partition("\n")[2], each
        assert len(text) < 1500, each
        good = each.name.endswith(" good")
        assert not (good and text), each
        if each.refused and WOULD_UNPACK not in each.refused:
            assert each.said["error"], f"refused without a reason: {each}"
    refused = sum(bool(each.said and each.said["error"]) for each in found)
    assert refused > 130  # what is left can be loaded: a changed weight, say
    assert not canary.exists()
    assert survivors() == []


def list_armed_texts(folder: Path) -> dict[Path, Path]:
    """Write a file for each text that torch runs; return each file's canary."""
    canaries = {}
    for name in [name for name, _ in damaged.armed(good_program(), "unused")]:
        canary = folder / f"executed-{name}"
        path = folder / f"{name}.pt2"
        path.write_bytes(dict(damaged.armed(good_program(), str(canary)))[name])
        canaries[path] = canary
    return canaries


@pytest.mark.skipif(bool(find_problem()), reason=find_problem() or "it works")
def test_armed_files_are_harmless_in_the_sandbox(tmp_path: Path) -> None:
    canaries = list_armed_texts(tmp_path)
    for name, data in damaged.armed_programs(good_program(), save, str(tmp_path / "x")):
        path = tmp_path / f"pickle-{name}.pt2"
        path.write_bytes(data)
        canaries[path] = tmp_path / "x"
    jobs = [{"unguarded": str(path)} for path in canaries]
    out = tmp_path / "loaded"
    out.mkdir()
    box = Sandbox((out,), (*canaries, LOADING))
    load_each(out / "answers", jobs, box)
    assert [path for path, canary in canaries.items() if canary.exists()] == []


def test_endless_reading_is_ended(tmp_path: Path) -> None:
    good, bomb, inputs = (tmp_path / name for name in ("a.pt2", "b.pt2", "c.pt"))
    good.write_bytes(good_program())
    bomb.write_bytes(damaged.size_bomb(good_program()))
    inputs.write_bytes(damaged.inputs_bomb(save))
    limit = {"reading_cpu_s": 4.0}
    jobs: list[dict[str, Any]] = [
        {"model": str(bomb), **limit},
        {"model": str(good), "inputs": str(inputs), **limit},
    ]
    loaded = load_each(tmp_path / "loaded", jobs)
    assert [each["status"] for each in loaded] == [-signal.SIGXCPU] * 2


@since_2_13
def test_armed_files_run_code_when_torch_loads_them_unguarded(tmp_path: Path) -> None:
    """What is not run above is not run because of shrinkfx."""
    canaries = {}
    kinds = ((armed_programs, ".pt2"), (armed_inputs, ".pt"))
    for number, (made, suffix) in enumerate(kinds):
        names = [name for name, _ in made("unused")]
        for name in names:
            canary = tmp_path / f"executed-{number}-{name}"
            data = dict(made(str(canary)))[name]  # it holds the canary's path
            path = tmp_path / f"{number}-{name}{suffix}"
            path.write_bytes(data)
            canaries[path] = canary
    load_each(tmp_path / "loaded", [{"unguarded": str(path)} for path in canaries])
    inert = sorted(
        path.name for path, canary in canaries.items() if not canary.exists()
    )
    assert inert == []


def test_archive_that_would_unpack_to_a_gigabyte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(damaged.bomb())
    for check in (require_program, require_inputs):
        with pytest.raises(LoadError, match="would unpack to 1200 MiB"):
            check(path)


def test_command_line_leaves_no_process_or_folder_after_a_bad_file(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    survivors: Callable[[], list[str]],
) -> None:
    canary = tmp_path / "executed"
    good = tmp_path / "good.pt2"
    good.write_bytes(good_program())
    of_program = dict(programs(str(canary)))
    of_inputs = dict(inputs(str(canary)))
    for name, data in itertools.chain(
        ((n, of_program[n]) for n in ("truncated-3", "inputs-saved-system", "text")),
        ((n, of_inputs[n]) for n in ("text", "saved-exec")),
    ):
        path = tmp_path / "bad.pt2"
        path.write_bytes(data)
        if name in of_program:
            arguments = [str(path)]
        else:
            arguments = [str(good), "--inputs", str(path)]
        code = main([*arguments, "--out", str(tmp_path / "out")])
        said = capsys.readouterr().err
        assert code == 2, (name, said)
        assert said.startswith(f"shrinkfx: {path}: "), (name, said)
        assert "Traceback" not in said
        assert not (tmp_path / "out").exists()
    assert not canary.exists()
    assert survivors() == []
