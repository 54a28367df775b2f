"""What a check leaves behind for the blame, and values that it returns besides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.zoo import eager, loaded
from torch import fx
from torch._inductor import debug
from torch._inductor.exc import InductorError

from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.files import Launch, Traces
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.checking.evidence import (
    PROVENANCE,
    collect_evidence,
    find_launch_number,
    find_raising_nodes,
    find_undeclared_size,
)
from shrinkfx.worker.checking.reference import Reference
from shrinkfx.worker.explaining.origins import find_origins
from shrinkfx.worker.graph.rebuild import rebuild
from shrinkfx.worker.interpreter.findings import Fault, KernelFinding, Probe, Report
from shrinkfx.worker.interpreter.memory_checks import CHECKER, LaunchRecord


class Stops(Exception):
    """Raised where the program is lowered."""


class Interpreter(fx.Interpreter):
    """Stops at an operator, as lowering does."""

    def call_function(self, target: object, args: object, kwargs: object) -> object:
        if target is torch.ops.aten.tanh.default:
            raise Stops
        return torch.ones(2)


def graph() -> fx.GraphModule:
    made = fx.Graph()
    x = made.placeholder("x")
    first = made.call_function(torch.ops.aten.relu.default, (x,), name="first")
    made.output(made.call_function(torch.ops.aten.tanh.default, (first,), name="last"))
    return fx.GraphModule({}, made)


def test_raising_node_is_found_from_the_traceback_frames() -> None:
    with pytest.raises(Stops) as caught:
        Interpreter(graph()).run(torch.ones(2))
    assert find_raising_nodes(caught.value)[0] == ["last"]
    wrapped = RuntimeError("while lowering")
    wrapped.__cause__ = caught.value
    assert find_raising_nodes(wrapped)[0] == ["last"]


def test_undeclared_size_is_attributed_to_the_node_that_yields_it() -> None:
    program = graph()
    first = next(node for node in program.graph.nodes if node.name == "first")
    first.meta["unbacked_bindings"] = {"u0": ()}

    class Refuses(fx.Interpreter):
        said = ""

        def call_function(self, target: object, args: object, kwargs: object) -> object:
            raise RuntimeError(self.said)

    compiler = Refuses(program)

    for said, names in (
        ("error: 'u0' was not declared in this scope; 'y0'?", [["first"]]),
        ("error: \u2018u0\u2019 was not declared in this scope", [["first"]]),
        ("error: use of undeclared identifier 'u0'", [["first"]]),
        ("error: 'u1' was not declared in this scope", []),
        ("error: 'u0' is ambiguous", []),
    ):
        compiler.said = said
        with pytest.raises(RuntimeError) as caught:
            compiler.run(torch.ones(2))
        assert find_undeclared_size(caught.value) == names


def test_evidence_is_written_to_disk_before_each_stage(tmp_path: Path) -> None:
    path, stages = tmp_path / "evidence.json", list[str]()
    with collect_evidence(path, stages.append) as note:
        note("compile")
        for kernel in ("cpp_7:2", "cpp_9:11", "cpp_7:10"):
            debug._inductor_kernel_stack_trace[kernel] = []
        note("run")
        debug._inductor_kernel_stack_trace.clear()
        left = Traces.from_line(path.read_text())
        seven, nine = Launch("cpp_7", ()), Launch("cpp_9", ())
        assert left == Traces(launches=(seven, seven, nine))
    assert stages == ["compile", "run"]
    # A child that runs a package which another has compiled knows of no kernel.
    with pytest.raises(Stops), collect_evidence(path, stages.append):
        raise Stops("no")
    assert Traces.from_line(path.read_text()) == replace(left, message="no")


def test_kernel_launches_are_named_by_nodes_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, skeleton, values = loaded("several")
    built = rebuild(program, Candidate.from_skeleton(skeleton), values)
    path = tmp_path / "evidence.json"

    def stop(*_: object, **__: object) -> None:
        raise Stops  # before the C++ compiler

    monkeypatch.setattr("torch._inductor.codecache.AotCodeCompiler.compile", stop)
    with pytest.raises(InductorError), collect_evidence(path, lambda _: None):
        torch._inductor.aoti_compile_and_package(
            built.exported,
            package_path=str(tmp_path / "model.pt2"),
            inductor_configs=dict(PROVENANCE),
        )
    launches = Traces.from_line(path.read_text()).launches
    assert launches
    names = {name for launch in launches for name in launch.nodes}
    assert names <= set(skeleton.graph)
    assert len(names & set(skeleton.operators)) > len(skeleton.operators) / 2


def test_failed_codegen_is_attributed_to_all_nodes_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fused(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x.relu(), 1)

    def stop(*_: object, **__: object) -> None:
        raise Stops

    monkeypatch.setattr("torch._inductor.codegen.cpp.CppScheduling.codegen_node", stop)
    path = tmp_path / "evidence.json"
    with pytest.raises(InductorError), collect_evidence(path, lambda _: None):
        torch._inductor.aoti_compile_and_package(
            torch.export.export(Fused(), (torch.ones(3, 40),)),
            package_path=str(tmp_path / "model.pt2"),
            inductor_configs=dict(PROVENANCE),
        )
    (at_work,) = Traces.from_line(path.read_text()).raised_at
    assert set(at_work) == {"relu", "softmax"}


def test_rebuilt_program_returns_tapped_values_by_name() -> None:
    program, skeleton, values = loaded("several")
    whole = Candidate.from_skeleton(skeleton)
    taps = [v for name in skeleton.operators for v in skeleton.values(name)]
    plain, tapped = (
        rebuild(program, whole, values),
        rebuild(program, whole, values, taps),
    )
    assert set(tapped.outputs) == {*taps, *plain.outputs}
    assert len(plain.outputs) < len(tapped.outputs)
    results = eager(tapped.exported, tapped.failing)
    for name, result in zip(tapped.outputs, results, strict=True):
        torch.testing.assert_close(result, values.failing(name))


def test_differing_values_are_named() -> None:
    program, skeleton, values = loaded("several")
    taps = list(skeleton.operators[2:5])
    built = rebuild(program, Candidate.from_skeleton(skeleton), values, taps)
    reference = Reference(built, CheckOptions(taps=tuple(taps)))
    reference.run_eager()
    results = eager(built.exported, built.failing)
    assert reference.compare(results).differing == ()
    place = built.outputs.index(taps[1])
    results[place] = results[place] + 1
    answer = reference.compare(results)
    assert answer.differing == (taps[1],)
    assert answer.difference is not None
    assert f"output {place}: " in answer.difference.text


def test_node_of_a_later_graph_is_traced_to_the_program_graph() -> None:
    module = graph()
    node = next(n for n in module.graph.nodes if n.name == "last")
    later = fx.Graph()
    copied = later.call_function(torch.ops.aten.tanh.default, (), name="tanh_9")
    copied.meta["from_node"] = [fx.traceback.NodeSource(node, "export")]
    assert find_origins(copied) == ["tanh_9"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(debug, "_pre_grad_graph_id", id(module.graph))
        assert find_origins(copied) == ["last"]
        assert find_origins(node) == ["last"]


def test_out_of_bounds_launch_is_numbered_among_those_of_its_kernel() -> None:
    kernels = ("edge_kernel_0", "triton_poi_fused_mul_0", "edge_kernel_0")
    finding = KernelFinding(probe=Probe.REAL, fault=Fault.LOAD, kernel="edge_kernel_0")
    with pytest.MonkeyPatch.context() as patched:
        launched = [LaunchRecord(kernel, (1, 1, 1), {}) for kernel in kernels]
        patched.setattr(CHECKER, "launched", launched)
        assert find_launch_number(Report([finding])) == 2
        assert find_launch_number(ValueError("no finding")) == 0
        timed = replace(finding, probe=Probe.HINTS)
        assert find_launch_number(Report([timed])) == 0
