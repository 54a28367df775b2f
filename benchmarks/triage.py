"""Does ``shrinkfx triage`` find the bugs behind a folder of programs, and at what cost?

``python benchmarks/triage.py make DIR`` exports programs with the bugs of
``triage_bugs.py``, each bug in several models, and healthy programs;
``python benchmarks/triage.py run DIR OUT`` triages them, and compares the result with
the truth: bugs found, programs merged wrongly, bugs split wrongly, and CPU-seconds.
With ``--real``, the bugs are those of PyTorch itself, in four models each.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "repros"))
from _haystack import (
    Dlrm,
    EncoderDecoder,
    Experts,
    LstmTagger,
    ResidualCnn,
    TemporalConv,
    Transformer,
    random_ids,
    random_tensor,
)

BUGS: dict[str, Callable[[Tensor], Tensor]] = {
    "atan": torch.atan,
    "erfc": torch.erfc,
    "expm1": torch.expm1,
    "log1p": lambda x: torch.log1p(x.abs()),
    "sinh_of_cosh": lambda x: torch.sinh(torch.cosh(x.tanh())),
    "cumsum": lambda x: torch.cumsum(x, -1),
    "flip": lambda x: torch.flip(x, [-1]),
    "trunc": torch.trunc,
    "sign": torch.sign,
    "asinh": torch.asinh,
    "acosh": lambda x: torch.acosh(x.abs() + 2),
    "tan": lambda x: torch.tan(x.tanh()),
    "floor": torch.floor,
    "lgamma": lambda x: torch.lgamma(x.abs() + 1),
    "atan2": lambda x: torch.atan2(x, x.abs() + 1),
    "triu": lambda x: torch.triu(x),
    "log2": lambda x: torch.log2(x.abs() + 1),
    "hypot": lambda x: torch.hypot(x, x.tanh()),
    "roll": lambda x: torch.roll(x, 1, -1),
    "fmod": lambda x: torch.fmod(x, x.abs() + 1),
}
REAL: dict[str, Callable[[Tensor], Tensor]] = {
    "pytorch_191499": lambda x: torch.argmax(-bytes_of(x)).to(x.dtype),
    "pytorch_196596": lambda x: torch.addmm(
        x.new_full((1,), math.nan),
        x.flatten(0, -2)[:1],
        x.new_ones(x.shape[-1], x.shape[-1]),
        beta=0,
    ).mean(),
    "pytorch_197106_prod": lambda x: torch.prod(x.detach(), dtype=torch.bool).to(
        x.dtype
    ),
    "pytorch_197108": lambda x: torch.var_mean(x.flatten()[:0])[1].nan_to_num(1.0),
    "pytorch_198081": lambda x: torch.any(bytes_of(x).to(torch.uint8)) * 200 + 100,
    "pytorch_198201": lambda x: nn.functional.interpolate(
        x.flatten()[:6].view(1, 1, 2, 3), scale_factor=(1.3, 1.5)
    ).mean(),
    "found_complex_argument": lambda x: (
        torch.masked_fill(torch.complex(x, x), x > 0, 1 + 2j).real
    ),
}
"""Bugs of PyTorch 2.15, which nothing plants; they are in ``repros/``."""

HEALTHY: dict[str, Callable[[Tensor], Tensor]] = {
    "healthy": torch.tanh,
    "healthy_sinh": lambda x: torch.sinh(x.tanh()),
    "healthy_sort": lambda x: torch.sort(x, -1).values,
    "healthy_round": lambda x: torch.round(x * 10) / 10,
    "healthy_norm": lambda x: x / x.norm(dim=-1, keepdim=True),
}
TWO = {
    "two_of_atan_and_log1p": ("atan", "log1p"),
    "two_of_cumsum_and_expm1": ("cumsum", "expm1"),
    "two_of_atan_and_sign": ("atan", "sign"),
}

Report = dict[str, Any]


def bytes_of(x: Tensor) -> Tensor:
    """Return the sizes of values as integers from 1 to 100."""
    return (x.flatten().abs() * 10).clamp(1, 100).to(torch.int8)


Made = tuple[nn.Module, tuple[object, ...]]


class Needle(nn.Module):
    """Add the results of functions to the hidden state, after one another."""

    def __init__(self, *functions: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, hidden: Tensor, *_others: Tensor) -> Tensor:
        for function in self.functions:
            hidden = hidden + function(hidden * 3)
        return hidden


def cnn(needle: nn.Module) -> Made:
    return ResidualCnn(needle), (random_tensor(2, 3, 8, 8, seed=1),)


def dlrm(needle: nn.Module) -> Made:
    ids = [random_ids(4, 3, high=40, seed=seed) for seed in range(12)]
    return Dlrm(needle), ({"dense": random_tensor(4, 6, seed=1), "ids": ids},)


def lstm(needle: nn.Module) -> Made:
    return LstmTagger(needle), (random_ids(2, 6, high=50, seed=1),)


def temporal(needle: nn.Module) -> Made:
    return TemporalConv(needle), (random_tensor(2, 4, 12, seed=1),)


def transformer(needle: nn.Module) -> Made:
    return Transformer(needle, blocks=2), (random_ids(2, 6, high=50, seed=1),)


def encoder_decoder(needle: nn.Module) -> Made:
    source, target = random_tensor(2, 5, 16, seed=1), random_tensor(2, 4, 16, seed=2)
    return EncoderDecoder(needle), (source, target)


def experts(needle: nn.Module) -> Made:
    return Experts(needle), (random_tensor(20, 16, seed=1),)


MODELS = {
    "dlrm": dlrm,
    "cnn": cnn,
    "lstm": lstm,
    "temporal": temporal,
    "transformer": transformer,
    "encoder_decoder": encoder_decoder,
    "experts": experts,
}
"""None calls an operator with a planted bug."""


def make_real(folder: Path) -> None:
    """Export each real bug in four models."""
    folder.mkdir(parents=True, exist_ok=True)
    truth = {}
    for name, function in REAL.items():
        for place, model in list(MODELS.items())[:4]:
            export(model(Needle(function)), folder / f"{name}-{place}.pt2")
            truth[f"{name}-{place}.pt2"] = [name]
    (folder / "truth.json").write_text(json.dumps(truth, indent=1))


def make(folder: Path, bugs: int) -> None:
    """Export each bug in four to seven models, healthy programs, some with two bugs."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen, truth = dict(list(BUGS.items())[:bugs]), {}
    for number, (name, function) in enumerate({**chosen, **HEALTHY}.items()):
        models = 4 + number % 4 if name in BUGS else 2
        for place, model in list(MODELS.items())[:models]:
            export(model(Needle(function)), folder / f"{name}-{place}.pt2")
            truth[f"{name}-{place}.pt2"] = [name] if name in BUGS else []
    for name, pair in TWO.items():
        if {*pair} <= {*chosen}:
            export(cnn(Needle(*(BUGS[one] for one in pair))), folder / f"{name}.pt2")
            truth[f"{name}.pt2"] = [*pair]
    (folder / "truth.json").write_text(json.dumps(truth, indent=1))


def export(made: Made, path: Path) -> None:
    module, inputs = made
    torch.export.save(torch.export.export(module.eval(), inputs), path)


def score(folder: Path, out: Path) -> None:
    """Print what the triage found, beside the truth."""
    truth = json.loads((folder / "truth.json").read_text())
    report = json.loads((out / "triage.json").read_text())
    found_by: dict[str, set[int]] = defaultdict(set)
    groups = [
        [Path(each["program"]).name for each in bug["members"]]
        for bug in report["bugs"]
    ]
    common = [set.intersection(*(set(truth[name]) for name in each)) for each in groups]
    for number in sorted(range(len(groups)), key=lambda number: len(common[number])):
        # If all programs of a group have two bugs, it is the one of no other group.
        for name in common[number] - found_by.keys() or common[number]:
            found_by[name].add(number)
    merged = [each for each, names in zip(groups, common, strict=True) if not names]
    reported = {name for each in groups for name in each}
    expected = {name for bugs in truth.values() for name in bugs}
    healthy = {name for name, bugs in truth.items() if not bugs}
    print(f"programs: {len(truth)}; bugs: {len(expected)}; found: {len(found_by)}")
    print(f"not found: {sorted(expected - found_by.keys())}")
    print(f"wrong merges: {merged}")
    print(f"split: { {name: len(n) for name, n in found_by.items() if len(n) > 1} }")
    print(f"healthy programs among the failing ones: {sorted(healthy & reported)}")
    missing = truth.keys() - reported - healthy
    print(f"failing programs without a bug: {sorted(missing)}")
    print_cost(report, out)


def print_cost(report: Report, out: Path) -> None:
    """Print the seconds of programs, by what became of them."""
    spent = defaultdict(list)
    for result in report["state"]["results"]:
        spent[result["status"]].append(result["seconds"])
    for status, seconds in spent.items():
        print(f"{status}: {len(seconds)} programs, {sum(seconds):.0f} s")
    reduced = 0.0
    for summary in out.glob("runs/*/summary.json"):
        reduced += sum(json.loads(summary.read_text())["cpu_seconds"].values())
    print(f"CPU-seconds of the reductions: {reduced:.0f}")


def run(folder: Path, out: Path, jobs: int, *, real: bool) -> None:
    """Triage the programs, and print the cost."""
    preload = Path(__file__).with_name("triage_bugs.py")
    command = [sys.executable, "-m", "shrinkfx", "triage", str(folder)]
    options = ["--out", str(out), "--jobs", str(jobs)]
    options += [] if real else ["--", "--preload", str(preload)]
    subprocess.run([*command, *options], check=False)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"CPU-seconds of all: {used.ru_utime + used.ru_stime:.0f}")
    score(folder, out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=("make", "run", "score"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--bugs", type=int, default=len(BUGS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--real", action="store_true", help="plant no bug")
    arguments = parser.parse_args()
    if arguments.task == "make" and arguments.real:
        make_real(arguments.folder)
    elif arguments.task == "make":
        make(arguments.folder, arguments.bugs)
    elif arguments.task == "run":
        run(arguments.folder, arguments.out, arguments.jobs, real=arguments.real)
    else:
        score(arguments.folder, arguments.out)


if __name__ == "__main__":
    main()
