"""Reduce a program with everything real but the compiler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import sympy
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from shrinkfx.errors import InvalidEdit
from shrinkfx.failure.verdict import Observation, Outcome, Verdict
from shrinkfx.program.apply import apply
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.program.view import View
from shrinkfx.protocol.requests import Setup
from shrinkfx.search.asker import Asker
from shrinkfx.search.reducer import Reducer
from shrinkfx.search.strategy import choose
from shrinkfx.strategies.operators import BypassInBranches
from shrinkfx.testing import PLANTED
from shrinkfx.worker.checking.reference import count_unstable_outputs
from shrinkfx.worker.eager.intermediates import (
    SEED,
    EagerValues,
    RunRecord,
    restride,
    run_eager,
)
from shrinkfx.worker.graph.describe import describe
from shrinkfx.worker.graph.rebuild import CannotRebuild, RebuiltCandidate, rebuild
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.model import Inputs, Program
from shrinkfx.worker.printing.module import Unprintable, export_source
from shrinkfx.worker.sizes.bindings import SizesByName, evaluate_size
from support.random_programs import Made


@dataclass(frozen=True)
class Loaded:
    """A program as the worker holds it."""

    program: Program
    skeleton: Skeleton
    values: EagerValues

    @classmethod
    def from_files(
        cls, folder: Path, made: Made, exported: ExportedProgram, *, in_place: bool
    ) -> Loaded:
        """Save and load, with inputs of another size where there can be."""
        model, inputs = folder / "model.pt2", folder / "inputs.pt"
        torch.export.save(exported, model)
        other = _of_another_size(exported, made)
        if other is not None:
            torch.save({"args": other.args, "kwargs": other.kwargs}, inputs)
        given = None if other is None else str(inputs)
        program = load(Setup(str(folder), model=str(model), inputs=given))
        program = program.as_exported() if in_place else program
        values = EagerValues(folder / "values", program)
        recorded = values.record(program)
        assert recorded == RunRecord(), recorded
        return cls(program, describe(program, ""), values)

    def node(self, name: str) -> fx.Node:
        found: fx.Node
        (found,) = [n for n in self.program.graph.graph.nodes if n.name == name]
        return found


def real(loaded: Loaded, candidate: Candidate) -> RebuiltCandidate:
    """Rebuild as the worker does, exported again where that is needed."""
    built = rebuild(loaded.program, candidate, loaded.values)
    if not built.stale:
        return built
    return RebuiltCandidate(export_source(built)[0], built.example, built.failing)


def calls(node: fx.Node, target: str) -> bool:
    """Tell whether a node calls an operator: itself, in a branch, or by handing
    it on."""
    inner = [n for n in node.all_input_nodes if n.op == "get_attr"]
    graphs = [getattr(n.graph.owning_module, str(n.target)).graph for n in inner]
    return target in map(str, (node.target, *node.args[:1])) or any(
        calls(n, target) for graph in graphs for n in graph.nodes
    )


@dataclass
class RealOracle:
    """Reproduced if the culprit is in what was rebuilt, and fed by ``producer``.

    Attributes:
        producer: an operator that has to feed the culprit, or ''.
        refused: why candidates were no programs, by digest.
    """

    loaded: Loaded
    culprit: str
    producer: str = ""
    refused: dict[str, str] = field(default_factory=dict)

    def check(self, candidate: Candidate) -> Verdict:
        try:
            built = real(self.loaded, candidate)
        except (CannotRebuild, Unprintable) as error:
            return self._refuse(candidate, f"{type(error).__name__}: {error}")
        except Exception as error:
            raise AssertionError(f"{candidate} cannot be rebuilt") from error
        try:
            run(built)
        except RuntimeError as error:
            return self._refuse(candidate, f"eager: {error}")
        if not self._shows(built.exported):
            return Verdict(Outcome.PASSED, Observation())
        check_accepted(self.loaded, candidate, built, self.culprit)
        return Verdict(Outcome.REPRODUCED, Observation(PLANTED))

    def _refuse(self, candidate: Candidate, reason: str) -> Verdict:
        self.refused[candidate.digest] = reason
        return Verdict(Outcome.INVALID, Observation(invalid=reason))

    def _shows(self, exported: ExportedProgram) -> bool:
        return any(
            not self.producer
            or any(calls(n, self.producer) for n in _ancestors(culprit))
            for culprit in exported.graph.nodes
            if calls(culprit, self.culprit)
        )


def _ancestors(node: fx.Node) -> Iterator[fx.Node]:
    seen: set[fx.Node] = set()
    stack = list(node.all_input_nodes)
    while stack:
        found = stack.pop()
        if found not in seen:
            seen.add(found)
            yield found
            stack += found.all_input_nodes


def run(built: RebuiltCandidate) -> list[Any]:
    """Run on both sets of inputs."""
    run_eager(built.exported, built.failing, seed=SEED)
    return run_eager(built.exported, built.example, seed=SEED)


# --- what every accepted candidate must satisfy


def check_accepted(
    loaded: Loaded, candidate: Candidate, built: RebuiltCandidate, culprit: str
) -> None:
    built.exported.validate()  # type: ignore[no-untyped-call]
    check_values(loaded, candidate, built)
    check_layouts(built)
    check_dynamic(loaded, built, culprit)


def check_values(loaded: Loaded, candidate: Candidate, built: RebuiltCandidate) -> None:
    """Where nothing is put in another's place or random, values are the original's."""
    nodes = [loaded.node(name) for name in candidate.operators]
    random = torch.Tag.nondeterministic_seeded
    others = candidate.bypass or candidate.replace
    if others or any(random in getattr(n.target, "tags", ()) for n in nodes):
        return
    if loaded.program.graph is loaded.program.original:
        return  # written into later, values are not what they were
    shape = rebuild(loaded.program, candidate, loaded.values).exported
    names = [
        spec.arg.name
        for spec in shape.graph_signature.output_specs
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    for inputs, values in (
        (built.example, loaded.values.example),
        (built.failing, loaded.values.failing),
    ):
        actual, again = (
            run_eager(built.exported, inputs, seed=SEED, memory=n) for n in (0, 1)
        )
        wanted = [values(name) for name in names]
        for one, other, value in zip(actual, again, wanted, strict=True):
            if not count_unstable_outputs(
                [one], [other]
            ):  # else it is what lay in memory
                torch.testing.assert_close(one, value, equal_nan=True)


def check_dynamic(loaded: Loaded, built: RebuiltCandidate, culprit: str) -> None:
    """What the culprit reads has the dynamic dims that it had in the original."""
    before = _dynamic_operands(loaded.program.graph, culprit)
    after = _dynamic_operands(built.exported, culprit)
    assert before[0] in after, (before, after)


def _dynamic_operands(
    exported: ExportedProgram, culprit: str
) -> list[list[tuple[bool, ...]]]:
    """For each culprit and tensor operand, which dims are dynamic."""
    return [
        [
            tuple(isinstance(s, torch.SymInt) for s in operand.meta["val"].shape)
            for operand in pytree.tree_leaves((node.args, node.kwargs))
            if isinstance(operand, fx.Node) and _is_tensor(operand.meta.get("val"))
        ]
        for node in exported.graph.nodes
        if calls(node, culprit)
    ]


def check_layouts(built: RebuiltCandidate) -> None:
    """Inputs have the shapes and strides that the program was told."""
    for inputs in (built.example, built.failing):
        for node, value in zip(_inputs(built.exported), inputs.args, strict=True):
            said = node.meta["val"]
            sizes = {
                s.node.expr: sympy.Integer(n)
                for s, n in zip(said.shape, value.shape, strict=True)
                if isinstance(s, torch.SymInt)
            }
            for step, own, size in zip(
                said.stride(), value.stride(), value.shape, strict=True
            ):
                told = evaluate_size(step, sizes)
                assert told in (None, own) or size < 2, (node, said.stride(), value)


def _inputs(exported: ExportedProgram) -> list[fx.Node]:
    names = set(exported.graph_signature.user_inputs)
    nodes = exported.graph.nodes
    return [n for n in nodes if n.op == "placeholder" and n.name in names]


# --- inputs of another size


def _of_another_size(exported: ExportedProgram, made: Made) -> Inputs | None:
    """Make inputs for which each dynamic dim is another; None if there are none."""
    leaves, structure = pytree.tree_flatten((made.args, made.kwargs))
    nodes = {n.name: n for n in exported.graph.nodes}
    specs = exported.graph_signature.input_specs
    names = [s.arg.name for s in specs if s.kind is InputKind.USER_INPUT]
    said = [nodes[n].meta.get("val") if n in nodes else None for n in names]
    sizes = {
        symbol: _another(symbol, old, exported)
        for value, leaf in zip(said, leaves, strict=True)
        for symbol, old in _symbols(value, leaf)
    }
    changed = [_resized(v, leaf, sizes) for v, leaf in zip(said, leaves, strict=True)]
    args, kwargs = pytree.tree_unflatten(changed, structure)
    try:
        run_eager(exported, Inputs(args, kwargs), seed=SEED)
        exported.module()(*args, **kwargs)
    except (RuntimeError, AssertionError, IndexError):
        return None  # the program itself is not as dynamic as its inputs
    return Inputs(args, kwargs) if sizes else None


def _symbols(said: Any, real: Any) -> Iterator[tuple[sympy.Symbol, int]]:
    sizes = zip(said.shape, real.shape, strict=True) if _is_tensor(said) else []
    for size, number in [(said, real), *sizes]:
        if isinstance(size, torch.SymInt) and size.node.expr.free_symbols:
            (symbol,) = size.node.expr.free_symbols
            (old,) = sympy.solve(size.node.expr - number, symbol)
            yield symbol, int(old)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _another(symbol: sympy.Symbol, old: int, exported: ExportedProgram) -> Any:
    allowed = exported.range_constraints[symbol]
    return sympy.Integer(old + 2 if old + 2 <= allowed.upper else old - 1)


def _resized(said: Any, real: Any, sizes: SizesByName) -> Any:
    if isinstance(said, torch.SymInt):
        return evaluate_size(said, sizes)
    if not _is_tensor(said) or not any(isinstance(s, torch.SymInt) for s in said.shape):
        return real
    shape = [evaluate_size(size, sizes) or 0 for size in said.shape]
    stride = [evaluate_size(step, sizes) or 0 for step in said.stride()]
    return restride((torch.randn(shape) * 2).to(real.dtype), stride)


# --- the reduction itself


def reduce(
    loaded: Loaded, made: Made, random: Random
) -> tuple[RealOracle, Reducer, list[str]]:
    """Reduce; also the operators that the smallest result needs."""
    graph = loaded.program.graph.graph
    culprit = next(n.name for n in graph.nodes if calls(n, made.culprit))
    whole = Candidate.from_skeleton(loaded.skeleton)
    feeding = sorted(whole.producers(culprit))
    producer = random.choice(feeding) if feeding and random.random() < 0.4 else ""
    target = loaded.skeleton.node(producer).target if producer else ""
    needed = [culprit, *([producer] if producer else [])]
    oracle = RealOracle(loaded, made.culprit, target)
    reducer = Reducer(whole, Asker(oracle), choose(None))
    verdict = oracle.check(whole)
    assert verdict.reproduced, (made.culprit, target, verdict.observation.invalid)
    reducer.run()
    return oracle, reducer, needed


def check_size(
    loaded: Loaded, oracle: RealOracle, best: Candidate, needed: list[str]
) -> None:
    """Only what is needed is left; of what is inside of it, nothing more can go."""
    whole = sum(loaded.skeleton.node(name).operators for name in needed)
    assert len(best.operators) == len(needed), (best, oracle.refused)
    if not loaded.skeleton.subgraphs.keys() & needed:
        assert best.cost[0] == whole, (best, oracle.refused)
    assert best.cost[0] <= whole, (best, oracle.refused)
    for edit in BypassInBranches().propose(View(best)):
        with contextlib.suppress(InvalidEdit):
            other = apply(best, [edit])
            kept = other.cost >= best.cost or not oracle.check(other).reproduced
            assert kept, (best, edit)


def check_result(loaded: Loaded, reducer: Reducer, folder: Path) -> None:
    """The result can be saved, and printed as source that gives the same."""
    built = real(loaded, reducer.best)
    wanted = run_eager(built.exported, built.failing, seed=SEED)
    torch.export.save(built.exported, folder / "minimal.pt2")
    again = torch.export.load(folder / "minimal.pt2")
    torch.testing.assert_close(
        run_eager(again, built.failing, seed=SEED), wanted, equal_nan=True
    )
    source, _ = export_source(built)
    torch.testing.assert_close(
        run_eager(source, built.failing, seed=SEED), wanted, equal_nan=True
    )
