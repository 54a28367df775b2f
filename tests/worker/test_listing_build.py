"""Programs as listings: described, built, fitted and written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from support.exported import (
    ask,
    describe_candidate,
    export,
    make_candidate,
    save_setup,
)
from support.listings import codes, listed
from support.runnable_listings import listing, recipe
from support.torch_versions import hands_on_inputs
from support.zoo import ZOO, as_exported, loaded, real
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate, Outputs
from shrinkfx.program.edits import Drop, Rewrite
from shrinkfx.program.listing.changes import (
    Change,
    DropResult,
    Fix,
    Refill,
    Resize,
    Write,
    apply_changes,
)
from shrinkfx.program.listing.names import rename_values, short_names, sort_by_use
from shrinkfx.program.listing.printed_program import (
    MAIN,
    LeafKind,
    ListedType,
    PrintedProgram,
    Run,
    Types,
)
from shrinkfx.program.listing.tensor_specs import Constant, Opaque, Saved, Seeded
from shrinkfx.protocol.answers import (
    Checked,
    Done,
    Fitted,
    Listed,
    Printed,
)
from shrinkfx.protocol.files import Traces
from shrinkfx.protocol.requests import (
    CheckCandidate,
    CheckOptions,
    FitRewrites,
    ListCandidate,
    SaveCandidate,
    WriteCandidate,
)
from shrinkfx.report.record import Conditions, Failure, Programs, ProgramSize, RunRecord
from shrinkfx.report.repro import Data, write_repro
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.testing import FakeOracle
from shrinkfx.worker.eager.intermediates import SEED, run_eager
from shrinkfx.worker.graph.rebuild import CannotRebuild, RebuiltCandidate, rebuild
from shrinkfx.worker.listing.build import build, print_listing
from shrinkfx.worker.listing.describe import DescribedProgram, describe, saved_weights
from shrinkfx.worker.listing.fit import fit_rewrites
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
    built = make_candidate(Twice(), torch.ones(3), torch.ones(2, 2))
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
    linear = nn.Linear(3, 4, bias=False).requires_grad_(trains)
    found = describe(make_candidate(linear, torch.ones(2, 3)))
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


@pytest.fixture(params=["failing"])
def worker(tmp_path: Path, request: pytest.FixtureRequest) -> Worker:
    """Load a program with inputs that fail, and with others that pass if asked to."""
    near = {"args": scaled(4, 2), "kwargs": {}}
    given: dict[str, Any] = {"args": scaled(5, 1), "kwargs": {}}
    if request.param == "passing":
        given["passing"] = near
    dims = {0: Dim("rows", min=2)}, None
    exported = export(Scaled(), *scaled(3, 0), dynamic_shapes=dims)
    setup = save_setup(tmp_path, exported, given)
    return Worker(setup, 1, load(setup))


def list_whole(worker: Worker, folder: Path, data: str) -> tuple[Candidate, Listed]:
    """List the whole program; return the candidate with its listing as well."""
    whole = describe_candidate(worker, folder)
    listed = ask(worker, folder, ListCandidate(whole.to_json(), data))
    assert isinstance(listed, Listed)
    return whole.with_listing(listed.listing), listed


def test_worker_handles_a_listing_like_any_candidate(
    worker: Worker, tmp_path: Path
) -> None:
    data, program, inputs = (
        str(tmp_path / name) for name in ("data", "one.pt2", "two")
    )
    candidate, listed = list_whole(worker, tmp_path, data)
    assert listed.data == data
    again = ask(worker, tmp_path, ListCandidate(candidate.to_json(), data))
    assert again == replace(listed, seeded=Rewrite(()), data="")
    options = CheckOptions(data=listed.data)
    task = SaveCandidate(candidate.to_json(), program, inputs)
    assert isinstance(ask(worker, tmp_path, task, options), Done)
    given = torch.load(inputs, weights_only=True)
    assert all(map(is_identical, given, scaled(5, 1)))
    small = [Resize("x", 0, 4, Run.FAILING), *listed.seeded.changes[:2]]
    listing = apply_changes(listed.listing, small)
    candidate = candidate.with_listing(listing)
    written = WriteCandidate(candidate.to_json(), program, inputs)
    printed = ask(worker, tmp_path, written, options)
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
    whole, listed = list_whole(worker, tmp_path, str(tmp_path / "data"))
    options = CheckOptions(data=listed.data, evidence=str(evidence))
    answer = ask(worker, tmp_path, CheckCandidate(whole.to_json()), options)
    assert answer == Checked()
    named = {
        n
        for each in Traces.from_line(evidence.read_text()).launches
        for n in each.nodes
    }
    assert named
    assert named <= set(whole.operators)


# --- blocks


class Branched(nn.Module):
    """A ``cond``, a loop that carries one value for nobody, and a scan."""

    def forward(self, taken: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        def one(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            return a.relu() * 2 + b, a.exp()

        def other(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            return a.cos() - b, b.sin()

        first, second = torch.cond(taken, one, other, (x, y))

        def goes_on(i: Tensor, a: Tensor, b: Tensor) -> Tensor:
            return i < 5

        def body(i: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return i + 1, a.tanh() * first, b + 1

        begin = torch.zeros((), dtype=torch.int64), second, second
        _, looped, _ = while_loop(goes_on, body, begin)  # type: ignore[no-untyped-call]
        _, rows = scan(lambda c, row: (c + row.relu(), c * row), x[0], y)
        return looped, rows


@cache
def described() -> tuple[RebuiltCandidate, DescribedProgram]:
    square = torch.arange(9.0).reshape(3, 3) / 9
    args = torch.tensor(True), square, square.T.contiguous()
    built = make_candidate(Branched(), *args)
    return built, describe(built)


def call(made: PrintedProgram, callee: str) -> str:
    return next(s.name for s in made.main.statements if callee in s.callee)


def handed_on(made: PrintedProgram) -> list[Change]:
    block = made.block("FalseGraph0")
    return [Write(block.name, "return", n, block.arguments[0]) for n in (1, 2)]


def carried(made: PrintedProgram) -> list[Change]:
    return [DropResult(MAIN, call(made, "while_loop"), 2)]


@pytest.mark.parametrize(
    "changes", [pytest.param(handed_on, marks=hands_on_inputs), carried]
)
def test_cut_printed_program_can_be_exported_again(changes: object) -> None:
    _, found = described()
    assert callable(changes)
    made = apply_changes(found.listing, changes(found.listing))
    again = describe(build(made, found.saved)).listing
    assert [codes(again, b.name) for b in again.blocks] == [
        codes(made, b.name) for b in made.blocks
    ]


def test_cond_with_one_branch_for_both_can_be_exported() -> None:
    """An export has a graph for each all the same."""
    _, found = described()
    name = call(found.listing, "cond")
    writes = [Write(MAIN, name, leaf, "self.true_graph_0") for leaf in (1, 2)]
    made = apply_changes(found.listing, writes)
    again = describe(build(made, found.saved)).listing
    for branch in ("TrueGraph0", "FalseGraph0"):
        assert codes(again, branch) == codes(made, "TrueGraph0")


class RealFitter:
    """Fake tensors, in this process."""

    def types(self, candidate: Candidate) -> Types:
        assert candidate.listing is not None
        values = fit_rewrites(candidate.listing, []).values
        return {
            (v.block, v.name): ListedType(v.dtype, v.shape, v.stride, v.device)
            for v in values
        }

    def fit(
        self, candidate: Candidate, rewrites: Sequence[Rewrite]
    ) -> Sequence[Rewrite | None]:
        assert candidate.listing is not None
        return fit_rewrites(candidate.listing, rewrites).fits

    def ahead(self) -> RealFitter:
        return self


@hands_on_inputs
def test_loop_is_reduced_to_its_failing_operator() -> None:
    _, found = described()

    def fails(candidate: Candidate) -> bool:
        assert candidate.listing is not None
        build(candidate.listing, found.saved)  # what fake tensors take is a program
        inside = candidate.listing.blocks[:-1]
        return any("tanh" in s.callee for block in inside for s in block.statements)

    oracle = FakeOracle(fails)
    ours = choose(["shrink_branches", "redirect_operands", "simplify_arguments"])
    reducer = Reducer(listed(found.listing), Asker(oracle), ours, fitter=RealFitter())
    best = reducer.run().listing
    assert best is not None
    assert [
        [line.partition("  #")[0] for line in codes(best, b.name)] for b in best.blocks
    ] == [
        ["lt = aten.lt.Scalar(arg0_1, 1)", "return lt"],
        [
            "add = aten.add.Tensor(arg0_1, 1)",
            "tanh = aten.tanh.default(arg1_1)",
            "return (add, tanh)",
        ],
        [
            "zeros = aten.zeros.default([])",
            "while_loop = torch.ops.higher_order.while_loop("
            "self.while_loop_cond_graph_0, "
            "self.while_loop_body_graph_0, (zeros, x), ())",
            "getitem_3 = while_loop[1]",
            "return (getitem_3,)",
        ],
    ]
    assert len(oracle.asked) <= 16


@pytest.mark.parametrize(
    "name", ["branches", "weights", "in_place", "dynamic", "wrapped"]
)
def test_sorting_and_short_names_do_not_change_the_program(name: str) -> None:
    program, skeleton, values = loaded(name)
    built = rebuild(
        program, Candidate.from_skeleton(skeleton, Outputs.ORIGINAL), values
    )
    found = describe(built)
    ordered = sort_by_use(found.listing)
    short = rename_values(ordered, short_names(ordered))
    saved = {**saved_weights(built.exported), **found.saved}
    made = build(short, saved)
    results = (
        run_eager(each.exported, each.example, seed=SEED) for each in (made, built)
    )
    assert all(map(is_identical, *results))


# --- fitted rewrites


def smaller(program: PrintedProgram) -> Iterator[Change]:
    """Ask for every size to be less, every dim static, every number to be 1."""
    for given in program.given:
        recipe = given.recipe()
        shape = () if isinstance(recipe.fill, Opaque) else recipe.shape
        for dim, size in enumerate(shape):
            yield from (Resize(given.name, dim, n) for n in (1, 2) if n < size)
        yield from (Fix(given.name, dim) for dim, _ in given.open_dims)
    for block in program.blocks:
        for line in block.statements:
            for leaf in line.leaves:
                if line.yields and leaf.kind is LeafKind.NUMBER and leaf.text != "1":
                    yield Write(block.name, line.name, leaf.number, "1")


@pytest.mark.parametrize("name", sorted(ZOO))
def test_fitted_rewrites_build_and_run(name: str) -> None:
    program, skeleton, values = loaded(name)
    built = rebuild(
        program, Candidate.from_skeleton(skeleton, Outputs.ORIGINAL), values
    )
    found = describe(built)
    saved = {**saved_weights(built.exported), **found.saved}
    asked = [Rewrite((change,)) for change in smaller(found.listing)]
    answer = fit_rewrites(found.listing, asked, saved)
    assert {typed.name for typed in answer.values} >= set(found.listing.main.arguments)
    fits = [fit for fit in answer.fits if fit is not None]
    assert len(fits) >= 3
    for fit in fits[:: max(1, len(fits) // 3)]:
        made = build(apply_changes(found.listing, fit.changes), saved)
        for inputs in (made.example, made.failing):
            run_eager(made.exported, inputs, seed=SEED)


def test_worker_fits_rewrites_with_saved_values(tmp_path: Path) -> None:
    x = torch.randn(4)
    setup = save_setup(tmp_path, export(nn.ReLU(), x), (x,))
    worker = Worker(setup, 1, load(setup))
    ids = recipe(3, dtype="int64", fill=Saved("ids"))
    program = listing(
        {"i": ids},
        "y = torch.ops.aten.embedding.default(self.w, i)",
        "return (y,)",
        weights={"w": recipe(9, 2)},
    )
    torch.save({"ids": torch.tensor([0, 5, 2])}, tmp_path / "data.pt")
    asked = tuple(Rewrite((Resize("w", 0, size),)) for size in (6, 5))
    task = FitRewrites({"listing": program.to_json()}, asked)
    options = CheckOptions(data=str(tmp_path / "data.pt"))
    said = ask(worker, tmp_path, task, options)
    assert isinstance(said, Fitted)
    refill = Refill("i", Seeded("randint", 0, 5))
    assert said.fits == (asked[0], Rewrite((refill, Resize("w", 0, 5))))
    assert Fitted.from_line(said.to_line()) == said


@pytest.mark.parametrize("worker", ["passing"], indirect=True)
@pytest.mark.parametrize("listed", [False, True])
def test_result_can_be_written_for_the_passing_inputs_alone(
    worker: Worker, tmp_path: Path, *, listed: bool
) -> None:
    program, data = str(tmp_path / "one.pt2"), str(tmp_path / "values.pt")
    options, whole = CheckOptions(), describe_candidate(worker, tmp_path)
    if listed:
        whole, as_listing = list_whole(worker, tmp_path, str(tmp_path / "data"))
        options = CheckOptions(data=as_listing.data)

    def written(*, at_passing: bool) -> Printed:
        task = WriteCandidate(whole.to_json(), program, data, at_passing=at_passing)
        answer = ask(worker, tmp_path, task, options)
        assert isinstance(answer, Printed)
        return answer

    both, alone = written(at_passing=False), written(at_passing=True)
    assert (both.passes, alone.passes, alone.two_sets) == (True, False, True)
    assert both.source
    assert alone.source
    for given, one in zip(both.source.inputs, alone.source.inputs, strict=True):
        assert (one.failing, one.passing) == (given.passing, None)
    assert alone.source.inputs[0].failing
    assert alone.source.body == both.source.body
    values = torch.load(data, weights_only=True)
    if "failing" in values:
        assert all(map(is_identical, values["failing"], scaled(4, 2)))
    assert "passing" not in values
