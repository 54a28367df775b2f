"""A program as a listing is the same program, and so is what the listing says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_rebuild import as_exported, loaded, real
from torch import Tensor, nn
from torch.export import Dim
from zoo import ZOO

from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Drop, Rewrite
from shrinkfx.program.listing.changes import Refill, Resize, Write, apply_changes
from shrinkfx.program.listing.printed_program import MAIN, PrintedProgram, Run
from shrinkfx.program.listing.tensor_specs import Constant, Saved, Seeded
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import (
    Answer,
    Checked,
    Description,
    Done,
    Listed,
    Printed,
)
from shrinkfx.protocol.files import Traces
from shrinkfx.protocol.requests import (
    CheckCandidate,
    CheckOptions,
    Describe,
    ListCandidate,
    Request,
    SaveCandidate,
    Setup,
    Task,
    WriteCandidate,
)
from shrinkfx.report.record import (
    Conditions,
    Failure,
    Programs,
    ProgramSize,
    RunRecord,
)
from shrinkfx.report.repro import Data, write_repro
from shrinkfx.worker.eager.intermediates import SEED, run_eager
from shrinkfx.worker.graph.rebuild import CannotRebuild, RebuiltCandidate, rebuild
from shrinkfx.worker.listing.build import build, print_listing
from shrinkfx.worker.listing.describe import DescribedProgram, describe, saved_weights
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.model import Inputs
from shrinkfx.worker.origin import origin_of
from shrinkfx.worker.printing.module import is_identical
from shrinkfx.worker.tasks import Worker

WRITTEN_ANEW = {
    *(("loaded", "branches"), ("as_exported", "branches")),  # [x] becomes (x,)
    ("as_exported", "wrapped"),  # None, None, dtype becomes dtype=dtype
    ("loaded", "in_place"),  # self.calls.copy_(y) becomes an operator
}
"""What export spells in another way, and then in that one."""

HAVE_SIZES = {
    *("dynamic", "sizes_as_inputs", "kinds", "computed_dims", "size_arithmetic"),
    *("data_dependent", "writes"),
}
"""Programs with arithmetic on sizes, which export does in its own order."""


def again(found: DescribedProgram, built: RebuiltCandidate) -> RebuiltCandidate:
    """Make a program of what a listing says as JSON."""
    said = PrintedProgram.from_json(json.loads(json.dumps(found.listing.to_json())))
    assert said == found.listing
    return build(said, {**saved_weights(built.exported), **found.saved})


def require_same(made: RebuiltCandidate, built: RebuiltCandidate) -> None:
    """Hold inputs and results of two programs against each other, bit for bit."""
    for one, other in ((made.example, built.example), (made.failing, built.failing)):
        assert len(one.args) == len(other.args)
        assert all(map(is_identical, one.args, other.args))
        pairs = (run_eager(each.exported, one, seed=SEED) for each in (made, built))
        assert all(map(is_identical, *pairs))


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("form", [loaded, as_exported])
def test_listing_rebuilds_the_listed_program(name: str, form: Any) -> None:
    program, skeleton, values = form(name)
    candidate = Candidate.from_skeleton(skeleton, Outputs.ORIGINAL)
    built = rebuild(program, candidate, values)
    found = describe(built)
    made = again(found, built)
    made.exported.validate()  # type: ignore[no-untyped-call]
    require_same(made, built)
    names = {line.name for _, line in found.listing.operators()}
    assert set(candidate.operators) <= names | {"x"}
    main = [line for line in found.listing.main.statements if line.is_operator]
    nodes = {n.name: n for n in made.exported.graph.nodes}
    assert {line.name: line.origin for line in main} == {
        line.name: origin_of(nodes[line.name]) for line in main
    }
    said = describe(made)
    if name not in HAVE_SIZES and (form.__name__, name) not in WRITTEN_ANEW:
        assert said.listing == found.listing
    else:
        assert describe(again(said, made)).listing.blocks == said.listing.blocks


@pytest.mark.parametrize("name", ["weights", "several", "kinds", "writes", "wrapped"])
def test_listing_of_a_cut_program_computes_the_same_results(name: str) -> None:
    program, skeleton, values = loaded(name)
    whole = Candidate.from_skeleton(skeleton)
    half = apply(whole, [Drop(frozenset(whole.operators[::2]))])
    built = rebuild(program, half, values)
    found = describe(built)
    require_same(again(found, built), real(program, half, values))
    assert half.with_listing(found.listing).keep == half.keep


class Scaled(nn.Module):
    """Has a weight that no formula says, one that one does, and two inputs."""

    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0, 1, 80), requires_grad=False)
        self.register_buffer("shift", torch.ones(80))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x.to(torch.float32) * self.scale + self.shift).relu() @ y


def scaled(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Make inputs; y is strided, and always the same."""
    torch.manual_seed(seed)
    return torch.randn(rows, 80).bfloat16(), torch.arange(160.0).reshape(2, 80).t()


def in_three_runs() -> RebuiltCandidate:
    sets = {run: Inputs(scaled(n + 2, n), {}) for n, run in enumerate(Run)}
    example, passing, failing = sets.values()
    shapes = ({0: Dim("rows", min=2)}, None)
    exported = torch.export.export(Scaled(), example.args, dynamic_shapes=shapes)
    return RebuiltCandidate(exported, example, failing, passing=passing)


def test_each_run_has_its_own_tensor_spec_where_values_differ() -> None:
    built = in_three_runs()
    found = describe(built)
    x, y = found.listing.inputs
    assert [run for run, _ in x.recipes] == list(Run)
    assert [run for run, _ in y.recipes] == [Run.EXAMPLE]
    assert set(found.saved) == {"example_x", "passing_x", "failing_x"}
    saved = {**saved_weights(built.exported), **found.saved}
    made = build(found.listing, saved, runs=tuple(Run))
    require_same(made, built)
    assert made.passing is not None
    assert built.passing is not None
    assert all(map(is_identical, made.passing.args, built.passing.args))


def test_seeded_initializers_replace_all_saved_values() -> None:
    found = describe(in_three_runs())
    assert set(found.seeded.changes) == {
        Refill("scale", Seeded("rand")),
        *(Refill("x", Seeded("randn"), run) for run in Run),
    }
    drawn = apply_changes(found.listing, found.seeded.changes)
    assert not any(
        isinstance(recipe.fill, Saved) for g in drawn.given for _, recipe in g.recipes
    )
    assert build(drawn, {}).outputs == ("matmul",)


class Twice(nn.Module):
    """Has one branch twice, of other shapes."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        def twice(v: Tensor) -> Tensor:
            return v + v

        one: Tensor = torch.cond(x.sum() > 0, twice, torch.neg, (x,))
        other: Tensor = torch.cond(y.sum() > 0, twice, torch.sin, (y,))
        return one.relu(), other.tanh()


def test_one_block_may_be_called_with_several_shapes() -> None:
    inputs = Inputs((torch.ones(3), torch.ones(2, 2)), {})
    built = RebuiltCandidate(torch.export.export(Twice(), inputs.args), inputs, inputs)
    found = describe(built)
    calls = [line for line in found.listing.main.statements if "cond" in line.callee]
    first, second = calls
    same_branch = Write(MAIN, second.name, 1, first.leaves[1].text)
    listing = apply_changes(found.listing, [same_branch])
    assert f", {first.leaves[1].text}, " in listing.main.statement(second.name).code
    made = build(listing, found.saved)
    require_same(made, built)
    shapes = [
        node.meta["val"].shape
        for each in made.exported.graph_module.children()
        for node in each.graph.nodes
        if node.name == "add"
    ]
    assert sorted(map(tuple, shapes)) == [(2, 2), (3,)]


def about(listing: PrintedProgram) -> RunRecord:
    seen = Signature(Kind.MISMATCH, Stage.COMPARE, "", "output 0: wrong")
    programs = Programs(ProgramSize(90), ProgramSize(1), cut=90)
    conditions = Conditions(passes=Run.PASSING in dict(listing.inputs[0].recipes))
    return RunRecord(Failure(seen, seen), programs, conditions=conditions)


@pytest.mark.parametrize("trains", [True, False])
def test_printed_parameter_needs_a_gradient_if_the_original_does(trains: bool) -> None:
    """``aten.linear`` is compiled differently if its weight needs a gradient."""
    inputs = Inputs((torch.ones(2, 3),), {})
    linear = nn.Linear(3, 4, bias=False).requires_grad_(trains)
    exported = torch.export.export(linear, inputs.args)
    found = describe(RebuiltCandidate(exported, inputs, inputs))
    listing = apply_changes(found.listing, found.seeded.changes)
    made = build(listing, {})
    assert made.exported.state_dict["weight"].requires_grad is trains
    text = write_repro(print_listing(listing, {}), about(listing), [], Data.EXACT).text
    assert ("requires_grad=False" not in text) is trains


def test_repro_creates_the_inputs_and_weights_that_were_checked() -> None:
    found = describe(in_three_runs())
    drawn = apply_changes(found.listing, found.seeded.changes)
    made = build(drawn, {}, runs=tuple(Run))
    text = write_repro(print_listing(drawn, {}), about(drawn), [], Data.EXACT).text
    scope: dict[str, Any] = {}
    exec(text.partition("with torch.no_grad():")[0], scope)
    assert made.passing is not None
    runs = {"args": made.example, "passing": made.passing, "failing": made.failing}
    for name, inputs in runs.items():
        assert all(map(is_identical, scope[name], inputs.args))
    weights = made.exported.state_dict
    assert scope["model"].state_dict().keys() == weights.keys()
    for name, value in scope["model"].state_dict().items():
        assert torch.equal(value, weights[name])


def test_listing_with_an_invalid_statement_cannot_be_rebuilt() -> None:
    listing = describe(in_three_runs()).listing
    wrong = apply_changes(listing, [Resize("y", 0, 3), Refill("x", Constant(1.0))])
    with pytest.raises(CannotRebuild, match="RuntimeError"):
        build(apply_changes(wrong, [Refill("scale", Constant(1.0))]), {})


def test_intermediate_values_can_be_tapped() -> None:
    found = describe(in_three_runs())
    drawn = apply_changes(found.listing, found.seeded.changes)
    made = build(drawn, {}, taps=("relu", "gone"))
    assert made.outputs == ("matmul", "relu")
    results = run_eager(made.exported, made.failing, seed=SEED)
    assert torch.equal(results[0], results[1] @ made.failing.args[1])


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    rows = {0: Dim("rows", min=2)}
    exported = torch.export.export(Scaled(), scaled(3, 0), dynamic_shapes=(rows, None))
    torch.export.save(exported, tmp_path / "model.pt2")
    torch.save({"args": scaled(5, 1), "kwargs": {}}, tmp_path / "inputs.pt")
    model, inputs = (str(tmp_path / name) for name in ("model.pt2", "inputs.pt"))
    setup = Setup(str(tmp_path), model, inputs)
    return Worker(setup, 1, load(setup))


def test_worker_handles_a_listing_like_any_candidate(
    worker: Worker, tmp_path: Path
) -> None:
    data, program, inputs = (
        str(tmp_path / name) for name in ("data", "one.pt2", "two")
    )
    options = CheckOptions()

    def ask(task: Task) -> Answer:
        return worker.perform(Request(task, options), lambda stage: None, tmp_path)

    said = ask(Describe())
    assert isinstance(said, Description)
    skeleton = Skeleton.from_json(json.loads(Path(said.skeleton).read_text()))
    candidate = Candidate.from_skeleton(skeleton)
    listed = ask(ListCandidate(candidate.to_json(), data))
    assert isinstance(listed, Listed)
    assert listed.data == data
    candidate = candidate.with_listing(listed.listing)
    assert ask(ListCandidate(candidate.to_json(), data)) == replace(
        listed, seeded=Rewrite(()), data=""
    )
    options = CheckOptions(data=listed.data)
    assert isinstance(ask(SaveCandidate(candidate.to_json(), program, inputs)), Done)
    given = torch.load(inputs, weights_only=True)
    assert all(map(is_identical, given, scaled(5, 1)))
    small = [Resize("x", 0, 4, Run.FAILING), *listed.seeded.changes[:2]]
    listing = apply_changes(listed.listing, small)
    candidate = candidate.with_listing(listing)
    printed = ask(WriteCandidate(candidate.to_json(), program, inputs))
    assert isinstance(printed, Printed)
    assert (printed.two_sets, printed.operators) == (True, 6)
    assert printed.source is not None
    assert printed.source.body == tuple(line.line() for line in listing.main.statements)
    assert printed.source.inputs[0].example.exact.startswith("torch.randn")


@pytest.mark.aoti
def test_compiled_nodes_have_the_names_of_listing_statements(
    worker: Worker, tmp_path: Path
) -> None:
    evidence = tmp_path / "evidence.json"

    def ask(task: Task, data: str = "") -> Answer:
        options = CheckOptions(data=data or None, evidence=str(evidence))
        return worker.perform(Request(task, options), lambda stage: None, tmp_path)

    said = ask(Describe())
    assert isinstance(said, Description)
    skeleton = Skeleton.from_json(json.loads(Path(said.skeleton).read_text()))
    whole = Candidate.from_skeleton(skeleton)
    listed = ask(ListCandidate(whole.to_json(), str(tmp_path / "data")))
    assert isinstance(listed, Listed)
    candidate = whole.with_listing(listed.listing).to_json()
    answer = ask(CheckCandidate(candidate), listed.data)
    assert answer == Checked()
    named = {
        n
        for each in Traces.from_line(evidence.read_text()).launches
        for n in each.nodes
    }
    assert named
    assert named <= set(whole.operators)
