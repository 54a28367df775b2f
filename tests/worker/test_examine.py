"""What custom operators do that they do not declare."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import custom_operators
import pytest
import torch
from support.exported import Call as Called
from support.exported import make_program
from torch import Tensor
from torch.export import Dim

from shrinkfx.protocol.answers import Ending, Examined
from shrinkfx.protocol.operators import Misbehavior, OperatorFinding
from shrinkfx.protocol.requests import Examine, ExamineCandidate, Request, Setup
from shrinkfx.worker.forkserver.supervise import become_subreaper, supervise
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.operators.examine import custom_operators as custom_in
from shrinkfx.worker.operators.examine import examine, examine_runs, find_fake_kernel
from shrinkfx.worker.tasks import Worker

OPS = torch.ops.declared
NAN = torch.tensor([[float("nan"), 1.0, 2.0]] * 4)
Call = Callable[[Tensor], Any]


def program(call: Call, x: Tensor, *, dynamic: bool = True) -> Program:
    shapes = ({0: Dim("rows", max=64)},) if dynamic else None
    return make_program(Called(lambda x: call(x)), x, dynamic_shapes=shapes)


def found(made: Program, folder: Path, seconds: float = 60.0) -> list[tuple[str, str]]:
    """Examine a program; list what was found, the first word of it and all."""
    path = folder / "findings"
    answer = examine(made, Examine(str(path), seconds), folder / "at")
    assert list(answer.operators) == custom_in(made.original)
    assert not answer.over
    assert (folder / "at").read_text() == ""
    lines = path.read_text().splitlines() if path.exists() else []
    return [(f.what.value, f.text) for f in map(OperatorFinding.from_line, lines)]


def test_correctly_declared_operators_have_no_findings(tmp_path: Path) -> None:
    def call(x: Tensor) -> Any:
        kept = x.clone()
        OPS.adds(kept, x)
        return OPS.good(x, [x], by=3.0), OPS.good(x, [x.sin()]), OPS.counts(x), kept

    assert found(program(call, NAN), tmp_path) == []


def test_undeclared_write_is_found(tmp_path: Path) -> None:
    made = program(lambda x: OPS.writes(x, x.cos()), torch.randn(4, 3))
    assert found(made, tmp_path) == [
        (
            "writes",
            "declared.writes.default writes to its argument y, but its schema does "
            "not declare that",
        )
    ]


def test_fake_kernel_that_fixes_a_dim_is_found_at_another_size(tmp_path: Path) -> None:
    """At the size of the export all is well."""
    made = program(lambda x: (OPS.four_rows(x.sin()), x + 1), torch.randn(4, 3))
    ((what, text),) = found(made, tmp_path)
    assert what == "fixes"
    assert text == (
        "declared.four_rows.default has a fake kernel that declares size 4 for dim 0 "
        "of its result, whatever the input sizes, but the size is 5, when called with "
        "x=float32[5, 3]"
    )


def test_fixed_dim_is_also_found_when_the_inputs_have_another_size(
    tmp_path: Path,
) -> None:
    """What is wrong in the first run may only show why in the second."""
    made = program(lambda x: (OPS.four_rows(x.sin()), x + 1), torch.randn(4, 3))
    failing = Inputs((torch.randn(3, 3),), {})
    first, second = found(replace(made, failing=failing), tmp_path)
    assert (first[0], second[0]) == ("fake", "fixes")
    assert "declares size 4 for dim 0 of its result" in second[1]


DECLARED = "declares float32[4, 3] with strides [3, 1], but the operator returns "


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            OPS.widens,
            DECLARED
            + "float64[4, 3] with strides [3, 1], when called with x=float32[4, 3]",
        ),
        (
            OPS.transposes,
            DECLARED
            + "float32[4, 3] with strides [1, 4], when called with x=float32[4, 3]",
        ),
        (
            lambda x: OPS.attends(x, [], heads=2),
            "when called with x=float32[4, 3], more=[], heads=2",
        ),
        (
            lambda x: OPS.attends(x.mT, [], heads=2),
            "when called with x=float32[3, 4] with strides [1, 3], more=[], heads=2",
        ),
        (
            lambda x: OPS.attends(x, [x] * 4, 0.5, heads=3, how="very" * 20),
            "when called with x=float32[4, 3], more=float32[4, 3], more=float32[4, 3], "
            "more=float32[4, 3], ..., scale=0.5, heads=3, how=...",
        ),
        (
            lambda x: OPS.attends(x, [], heads=3, how="nearest"),
            "when called with x=float32[4, 3], more=[], heads=3, how='nearest'",
        ),
        (
            lambda x: OPS.attends(x, [], heads=3, how="/home/me"),
            "when called with x=float32[4, 3], more=[], heads=3, how=...",
        ),
    ],
)
def test_fake_kernel_mismatch_is_found_with_the_arguments(
    call: Call, said: str, tmp_path: Path
) -> None:
    made = program(call, torch.randn(4, 3), dynamic=False)
    ((what, text),) = found(made, tmp_path)
    assert what == "fake"
    assert text.endswith(said)


def add_to_itself(x: Tensor) -> Tensor:
    kept = x.clone()
    OPS.adds(kept, kept[:])
    return kept


@pytest.mark.parametrize(
    ("call", "dynamic"),
    [
        (OPS.picky, True),  # it refuses a size
        (add_to_itself, True),
        (OPS.as_it_lies_exactly, False),
        (OPS.random, False),
    ],
)
def test_refused_sizes_aliases_random_numbers_and_fixed_strides_are_no_findings(
    call: Call, dynamic: bool, tmp_path: Path
) -> None:
    made = program(call, torch.randn(4, 3), dynamic=dynamic)
    assert found(made, tmp_path) == []


def test_examination_stops_when_time_is_over(tmp_path: Path) -> None:
    made = program(lambda x: OPS.good(x, [x]), torch.randn(4, 3))
    task = Examine(str(tmp_path / "findings"), seconds=-1.0)
    answer = examine(made, task, tmp_path / "at")
    assert answer == Examined((), True)


def test_operators_in_branches_are_examined(tmp_path: Path) -> None:
    def branch(x: Tensor) -> Tensor:
        made: Tensor = OPS.writes(x + 1, x.cos())
        return made.clone()

    def call(x: Tensor) -> Tensor:
        taken: Tensor = torch.cond(x.sum() > 0, branch, torch.sin, (x,))
        return taken

    made = program(call, torch.ones(4, 3))
    ((what, _),) = found(made, tmp_path)
    assert what == "writes"


def test_pytorch_operators_are_not_custom_operators(tmp_path: Path) -> None:
    """So are those that are made of such: nothing but their parts is compiled."""
    exported = program(lambda x: OPS.taken_apart(x) @ x.t(), torch.ones(4, 3)).original
    assert custom_in(exported) == []


def test_operator_that_kills_its_process_is_named_with_its_shapes(
    tmp_path: Path,
) -> None:
    become_subreaper()
    made = program(lambda x: OPS.crashes(OPS.writes(x, x.cos())), torch.randn(4, 3))
    worker = Worker(Setup(str(tmp_path)), 1, made)
    path = tmp_path / "findings"
    request = Request(Examine(str(path), seconds=60.0))
    (tmp_path / "child").mkdir()
    ending: Ending = supervise(
        lambda note, folder: worker.perform(request, note, folder),
        request,
        tmp_path / "child",
    )
    assert (ending.how, ending.code) == ("signal", signal.SIGSEGV)
    assert ending.operator == (
        "declared.crashes.default (crashes) when called with x=float32[5, 3]"
    )
    (before,) = map(OperatorFinding.from_line, path.read_text().splitlines())
    assert (before.what, before.argument) == (Misbehavior.WRITES, "y")


@pytest.mark.parametrize(
    ("call", "what", "said"),
    [
        (
            OPS.behind,
            "strays",
            "the memory around its arguments, when called with x=float32[4, 3]",
        ),
        (OPS.half_filled, "unfilled", "computed from uninitialized memory"),
        (OPS.counting, "unsteady", "in each call with the same arguments"),
        (OPS.as_it_lies, "layout", "its tag flexible_layout allows compilers"),
        (
            *(lambda x: OPS.returns(x.sin()) + 1, "shares"),
            "returns memory of its argument x",
        ),
        (lambda x: OPS.twice(x)[0] + 1, "shares", "returns results that share memory"),
    ],
)
def test_undeclared_sharing_and_dependencies_are_found(
    call: Call, what: str, said: str, tmp_path: Path
) -> None:
    made = program(call, torch.randn(4, 3), dynamic=what == "shares")
    ((kind, text),) = found(made, tmp_path)
    assert kind == what
    assert said in text


def test_location_of_a_fake_kernel_in_a_file_is_found() -> None:
    source = Path(custom_operators.__file__)
    lines = source.read_text().splitlines()
    place = find_fake_kernel(torch.ops.declared.four_rows.default)
    file, _, line = place.rpartition(":")
    assert file == str(source)
    assert lines[int(line) - 1] == "@four_rows.register_fake"
    assert find_fake_kernel(torch.ops.aten.relu.default) == ""


def test_location_of_a_fake_kernel_by_register_fake_is_found() -> None:
    library = torch.library.Library("registered", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("plain(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
    assert find_fake_kernel(torch.ops.registered.plain.default) == ""

    @torch.library.register_fake("registered::plain", lib=library)  # type: ignore[untyped-decorator]
    def fake(x: Tensor) -> Tensor:
        return x

    here = fake.__code__
    place = f"{here.co_filename}:{here.co_firstlineno}"
    assert find_fake_kernel(torch.ops.registered.plain.default) == place


def test_candidate_is_examined_on_its_own_inputs_only(tmp_path: Path) -> None:
    """At 5 rows it lies; at the 4 that the program was exported with it does not."""
    made = program(lambda x: OPS.four_rows(x), torch.randn(4, 3))
    path = tmp_path / "findings"
    task = ExamineCandidate({}, str(path), 60.0)
    near, far = Inputs((torch.randn(4, 3),), {}), Inputs((torch.randn(5, 3),), {})
    examine_runs(made.original, [near], task, tmp_path / "at")
    assert not path.exists()
    answer = examine_runs(made.original, [far], task, tmp_path / "at")
    assert answer == Examined(("declared.four_rows.default",), over=False)
    (found,) = map(OperatorFinding.from_line, path.read_text().splitlines())
    assert found.what is Misbehavior.FAKE
    assert found.node == "four_rows"
    assert found.fake_kernel.startswith(custom_operators.__file__)
    assert "declares float32[4, 3]" in found.behavior_text
