"""Programs that hold script objects: read, cut, printed, and refused."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from support import damaged
from support.zoo import Loaded, load_program, temporary_folder
from torch import Tensor
from torch.export import ExportedProgram

from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Drop
from shrinkfx.protocol.requests import Setup
from shrinkfx.report.repro import SCRIPT_OBJECT
from shrinkfx.worker.eager.intermediates import SEED, run_eager
from shrinkfx.worker.graph.rebuild import RebuiltCandidate, rebuild
from shrinkfx.worker.listing.build import build
from shrinkfx.worker.listing.describe import describe as listing_of
from shrinkfx.worker.listing.describe import saved_weights
from shrinkfx.worker.loading.archive import Refused, restrict_unpickling
from shrinkfx.worker.loading.load import load, preload
from shrinkfx.worker.printing.module import export_source, long_values, print_program

pytestmark = pytest.mark.skipif(
    not any(Path(torch.__file__).parent.glob("lib/libtorchbind_test.so")),
    reason="this PyTorch comes without the classes of its tests",
)
PRELOAD = Path(__file__).with_name("script_objects.py")
BY_STATE = re.compile(r"script_object\(\[3, 4\], '[\w.]+_Foo'\)")


@functools.cache
def of_tests() -> Any:
    preload([str(PRELOAD)])
    return torch.classes._TorchScriptTesting


class Beside(torch.nn.Module):
    """Operators around a script object that one of them takes."""

    def __init__(self) -> None:
        super().__init__()
        self.foo = of_tests()._Foo(3, 4)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        scaled = torch.ops._TorchScriptTesting.takes_foo(self.foo, self.linear(x))
        return torch.tanh(scaled.relu()).sum(-1)


class Method(Beside):
    """The same, by a method of the object."""

    def forward(self, x: Tensor) -> Tensor:
        scaled = self.foo.add_tensor(self.linear(x).relu())
        return torch.tanh(scaled).sum(-1)


class Queue(torch.nn.Module):
    """Every call leaves the object as it was not before."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = of_tests()._TensorQueue(torch.zeros(4))
        self.queue.push(torch.arange(4.0))

    def forward(self, x: Tensor) -> Tensor:
        self.queue.push(x.sin())
        oldest: Tensor = self.queue.pop()
        return oldest + x.tanh()


MODULES = {"operator": Beside, "method": Method, "queue": Queue}


@functools.cache
def loaded(name: str) -> Loaded:
    of_tests()
    torch.manual_seed(0)
    x = torch.randn(4) if name == "queue" else torch.randn(2, 4)
    exported = torch.export.export(MODULES[name](), (x,))
    return load_program(exported, temporary_folder())


def cut(name: str, *dropped: str) -> RebuiltCandidate:
    program, skeleton, values = loaded(name)
    whole = Candidate.from_skeleton(skeleton)
    candidate = apply(whole, [Drop(frozenset(dropped))]) if dropped else whole
    return rebuild(program, candidate, values)


def results(exported: ExportedProgram, run: RebuiltCandidate) -> list[Any]:
    return run_eager(exported, run.failing, seed=SEED)


@pytest.mark.parametrize("name", MODULES)
def test_program_with_a_script_object_is_rebuilt_and_saved(
    name: str, tmp_path: Path
) -> None:
    program, _, _ = loaded(name)
    whole = cut(name)
    expected = run_eager(program.original, program.failing, seed=SEED)
    torch.testing.assert_close(results(whole.exported, whole), expected)
    torch.export.save(whole.exported, tmp_path / "minimal.pt2")
    again = load(Setup(str(tmp_path), model=str(tmp_path / "minimal.pt2")))
    found = run_eager(again.original, again.failing, seed=SEED)
    torch.testing.assert_close(found, expected)


def test_operators_next_to_a_script_object_can_be_cut() -> None:
    alone = cut("operator", "linear", "relu", "tanh", "sum_1")
    kinds = [spec.kind.name for spec in alone.exported.graph_signature.input_specs]
    assert kinds == ["CUSTOM_OBJ", "USER_INPUT"]
    without = cut("operator", "takes_foo", "linear", "relu")
    assert not without.exported.constants


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("operator", "torch.ops._TorchScriptTesting.takes_foo.default(self.foo, "),
        ("method", "self.foo.add_tensor("),
    ],
)
def test_script_object_of_plain_data_is_printed_as_its_state(
    name: str, call: str
) -> None:
    built = cut(name)
    printed = print_program(built)
    assert any(call in line for line in printed.body)
    (weight,) = (w for w in printed.weights if w.attribute == "foo")
    assert weight.kind == "script_object"
    assert BY_STATE.fullmatch(weight.text.exact)
    scope: dict[str, Any] = {"torch": torch}
    exec(SCRIPT_OBJECT, scope)
    made = eval(weight.text.exact, scope)
    assert made.add_tensor(torch.ones(1)).item() == 7
    expected = results(built.exported, built)
    torch.testing.assert_close(results(export_source(built)[0], built), expected)


@pytest.mark.parametrize("name", MODULES)
def test_listing_holds_script_objects(name: str) -> None:
    built = cut(name)
    found = listing_of(built)
    kind = "saved_object" if name == "queue" else "script_object"
    assert kind in {given.kind for given in found.listing.weights}
    saved = {**saved_weights(built.exported), **found.saved}
    made = build(found.listing, saved)
    expected = results(built.exported, built)
    torch.testing.assert_close(results(made.exported, made), expected)
    lines = found.listing.main.statements
    assert listing_of(made).listing.main.statements == lines


def test_script_object_with_tensors_is_printed_as_bytes() -> None:
    built = cut("queue")
    (weight,) = print_program(built).weights
    assert weight.kind == "saved_object"
    data = long_values(built)["weight_queue"]
    queue = torch._C._pickle_load_obj(bytes(data.tolist()))
    assert queue.pop().tolist() == [0, 1, 2, 3]


def test_calls_change_only_copies_of_a_script_object() -> None:
    """What is compiled after eager has run must hold the object as it was."""
    program, _, _ = loaded("queue")
    first = run_eager(program.original, program.failing, seed=SEED)
    again = run_eager(program.original, program.failing, seed=SEED)
    torch.testing.assert_close(first, again)
    second = run_eager(program.original, program.failing, seed=SEED, calls=2)
    assert not torch.equal(first[0], second[0])
    assert program.original.constants["queue"].size() == 1


# --- trust


def opaque(canary: Path) -> bytes:
    return damaged.opaque_object(damaged.Payload(os.mkdir, str(canary)))


def test_torch_runs_code_in_the_state_of_an_opaque_object(tmp_path: Path) -> None:
    """The reason for all that follows; torch reads it so."""
    torch._C._pickle_load_obj(opaque(tmp_path / "canary"))
    assert (tmp_path / "canary").exists()


def test_opaque_object_is_not_read(tmp_path: Path) -> None:
    with restrict_unpickling(), pytest.raises(Refused, match="which loading would"):
        torch._C._pickle_load_obj(opaque(tmp_path / "canary"))
    assert not (tmp_path / "canary").exists()
