"""Which operators a failure is blamed on: evidence as runs of ``repros/`` left it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from shrinkfx.failure.blame import Evidence, Suspect, group_ties, rank_suspects
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.program.skeleton import Node, Role, Skeleton
from shrinkfx.protocol.files import Code, Launch, Traces
from shrinkfx.testing import feed, operator, projection, size, skeleton

BOUNDS = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")
FAULT = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT)
CORRUPTION = Signature(Kind.IMA, Stage.RUN, MEMORY_FAULT)
BUILD = Signature(Kind.COMPILE_ERROR, Stage.COMPILE, "C++: not declared")
WRONG = Signature(Kind.MISMATCH, Stage.COMPARE)

PROGRAM = skeleton(
    {
        "x": "",
        "w": feed(Role.PARAMETER),
        "linear": "x w",
        "gelu": "linear",
        "add": "gelu x",
        "flip": "add",
        "roll": "flip",
        "tanh": "roll",
        "add_1": "add tanh",
        "linear_1": "add_1 w",
        "gelu_1": "linear_1",
    }
)
MM = "aoti_torch_cpu_addmm_out"
FUSED = "cpp_fused_add_flip_gelu_roll_tanh_1"
LAUNCHES: tuple[Launch, ...] = (
    Launch(MM, ("linear",)),
    Launch("cpp_fused_gelu_0", ("gelu", "linear")),
    Launch(FUSED, ("add", "gelu", "flip", "roll", "tanh", "add_1")),
    Launch(MM, ("linear_1",)),
    Launch("cpp_fused_gelu_0", ("gelu_1", "linear_1")),
)


def blamed(
    evidence: Evidence, failure: Signature, program: Skeleton = PROGRAM
) -> dict[str, float]:
    return {s.node: s.weight for s in rank_suspects(evidence, program, failure)}


def surest(weights: dict[str, float]) -> set[str]:
    return {name for name, weight in weights.items() if weight == max(weights.values())}


def launched(*events: str) -> str:
    """Print launches as AOTInductor does: ``before`` or ``after``, and the kernel."""
    pairs = zip(events[::2], events[1::2], strict=True)
    return "\n".join(f"[ {when}_launch: {kernel} ]" for when, kernel in pairs)


def test_assertion_is_blamed_on_indexing_operators_of_the_named_kernel() -> None:
    text = (
        "index out of bounds: 0 <= tmp6 < 12L\n"
        f"Exception raised from {FUSED} at /tmp/abc/model.kernel.cpp:631\n"
        "frame #1: cpp_fused_gelu_0 + 0x3f2 (0x7f in /tmp/abc/model.wrapper.so)"
    )
    found = rank_suspects(Evidence(LAUNCHES, text), PROGRAM, BOUNDS)
    assert {s.node for s in found[:2]} == {"flip", "roll"}
    assert str(found[0]) == f"aten.flip.default in kernel {FUSED}"
    weights = {s.node: s.weight for s in found}
    assert weights["tanh"] < weights["roll"]
    # It ran well in the kernel before.
    assert weights["gelu"] < weights["tanh"]
    assert "linear_1" not in weights


def test_launch_number_selects_among_operators_sharing_a_kernel() -> None:
    program = skeleton(
        {
            "x": "",
            **{"clip": operator("x", target="mylib.clip.default")},
            **{"clip_1": operator("clip", target="mylib.clip.default")},
            **{"clip_2": operator("clip_1", target="mylib.clip.default")},
            "tanh": "clip_2",
        }
    )
    names = ("clip", "clip_1", "clip_2")
    launches = tuple(Launch("clip_kernel_0", (name,)) for name in names)
    text = "out-of-bounds load of 4 bytes in clip_kernel_0 (user kernel clip_kernel)"
    told = Evidence(launches, text, launch=3)
    assert surest(blamed(told, FAULT, program)) == {"clip_2"}
    # Where it is not told, none is surer than another.
    assert surest(blamed(Evidence(launches, text), FAULT, program)) == set(names)
    assert surest(blamed(replace(told, launch=9), FAULT, program)) == set(names)


def test_source_line_of_the_model_is_shown() -> None:
    node = Node("", Role.OPERATOR, "aten.index.Tensor", ("x",), source="model.py:41")
    program = skeleton({"x": "", "index": node})
    (suspect,) = rank_suspects(
        Evidence((Launch("cpp_1", ("index",)),), "in cpp_1"), program, BOUNDS
    )
    assert str(suspect) == "aten.index.Tensor in kernel cpp_1, model.py:41"


def test_compile_error_clears_the_other_kernels() -> None:
    text = (
        f"CppCompileError\nIn function 'void {FUSED}(const float*)':\nerror: no hypot"
    )
    weights = blamed(Evidence(LAUNCHES, text), BUILD)
    assert surest(weights) == {"add", "flip", "roll", "tanh", "add_1"}
    assert "gelu_1" not in weights


def test_crash_is_blamed_on_the_kernel_that_was_launched_last() -> None:
    printed = launched("before", MM, "after", MM, "before", "cpp_fused_gelu_0")
    weights = blamed(Evidence(LAUNCHES, printed=printed), FAULT)
    assert set(weights) == {"gelu", "linear"}
    # Its matrix product is done by another kernel, before.
    assert surest(weights) == {"gelu"}


def test_memory_fault_is_blamed_on_the_kernel_at_the_code_address() -> None:
    """If that is launched once: the address does not tell which launch it was."""
    code = Code(FUSED, 4096, 300), Code("cpp_fused_gelu_0", 8192, 100)

    def at(address: int) -> dict[str, float]:
        # Another thread, which faults as well, may be at its own line.
        text = f"Fatal Python error: guard pages: by the code at {address}\n"
        return blamed(Evidence(LAUNCHES, text, code=code), FAULT)

    assert surest(at(4096)) == surest(at(4395)) >= {"flip", "roll", "tanh"}
    assert at(4396) == at(4095) == at(8200) == {}


def test_second_launch_of_a_kernel_is_distinguished_from_the_first() -> None:
    events = [
        w for one in LAUNCHES for w in ("before", one.kernel, "after", one.kernel)
    ]
    printed = launched(*events[:-2])
    assert surest(blamed(Evidence(LAUNCHES, printed=printed), FAULT)) == {"gelu_1"}
    again = launched(*events, *events[:6])
    assert surest(blamed(Evidence(LAUNCHES, printed=again), FAULT)) == {"gelu"}


def test_crash_between_launches_is_blamed_on_the_next_kernel() -> None:
    printed = launched("before", "cpp_fused_gelu_0", "after", "cpp_fused_gelu_0")
    weights = blamed(Evidence(LAUNCHES, printed=printed), FAULT)
    assert {"flip", "roll", "tanh"} <= surest(weights)
    # After the last one nothing is left to blame.
    events = [
        w for one in LAUNCHES for w in ("before", one.kernel, "after", one.kernel)
    ]
    assert not blamed(Evidence(LAUNCHES, printed=launched(*events)), FAULT)


def test_operator_whose_target_ran_before_is_less_suspect() -> None:
    launches = (Launch("cpp_0", ("add",)), Launch("cpp_1", ("add_1", "tanh")))
    weights = blamed(Evidence(launches, "in cpp_1"), FAULT)
    assert weights["add_1"] < weights["tanh"]


def test_heap_corruption_weighs_less_than_a_memory_fault() -> None:
    printed = launched("before", "cpp_fused_gelu_0")
    evidence = Evidence(LAUNCHES, printed=printed)
    assert blamed(evidence, CORRUPTION)["gelu"] < blamed(evidence, FAULT)["gelu"]


def test_compile_error_is_blamed_on_the_node_being_compiled() -> None:
    evidence = Evidence(
        text="LoweringException: NotImplementedError: no\n  target: aten.add.default",
        raised_at=(("tanh",), ("add_1", "tanh")),
    )
    weights = blamed(evidence, BUILD)
    assert weights == {"tanh": 1.0, "add": 0.7, "add_1": 0.7}


def test_fake_kernel_mismatch_weighs_most_for_memory_faults() -> None:
    evidence = Evidence(mismatched=("flip",))
    assert blamed(evidence, FAULT) == blamed(evidence, CORRUPTION) == {"flip": 1.0}
    assert blamed(evidence, WRONG) == {"flip": 0.8}
    assert blamed(evidence, BUILD) == {"flip": 0.3}


def test_operator_where_eager_stops_weighs_most_at_run_time() -> None:
    assert blamed(Evidence(stopped="gelu"), BOUNDS) == {"gelu": 1.0}
    assert blamed(Evidence(stopped="gelu"), BUILD) == {"gelu": 0.3}


def differing(names: Iterable[str], among: Iterable[str]) -> Evidence:
    wrong = tuple(names)
    return Evidence(differing=wrong, agreeing=tuple(n for n in among if n not in wrong))


def test_wrong_result_is_blamed_on_the_first_wrong_value() -> None:
    names = PROGRAM.operators
    wrong = ["gelu_1", "linear_1", "add_1", "tanh", "roll"]
    assert blamed(differing(wrong, names), WRONG) == {"roll": 1.0}


def test_wrong_output_of_several_is_blamed_on_the_returning_operator() -> None:
    program = skeleton(
        {
            "x": "",
            "size": size("x"),
            "split": operator("x size", value=None),
            "first": projection("split"),
            "second": projection("split"),
            "add": "first second",
        }
    )
    evidence = differing(["second", "add"], ["first", "second", "add"])
    assert blamed(evidence, WRONG, program) == {"split": 1.0}


def test_operators_after_the_last_agreeing_values_are_suspects() -> None:
    # Only some values were compared.
    evidence = differing(["add_1", "gelu_1"], ["gelu", "add", "add_1", "gelu_1"])
    assert blamed(evidence, WRONG) == dict.fromkeys(
        ["flip", "roll", "tanh", "add_1"], 0.6
    )


def test_wrong_value_in_shared_memory_is_blamed_on_its_writers() -> None:
    # Lost, a write shows in all that shares the memory: they are compared at the end.
    relu = operator("norm", target="aten.relu_.default", storage=1, impure=True)
    program = skeleton(
        {
            "x": "",
            "relu_0": operator("x", target="aten.relu_.default", impure=True),
            "norm": operator("relu_0", storage=1),
            "relu": relu,
            "chunk": operator("relu", value=None, storage=1),
            "half": replace(projection("chunk"), storage=1),
            "mul": operator("half", target="aten.mul_.Tensor", storage=1, impure=True),
            "conv": "relu",
        }
    )
    evidence = differing(["norm", "relu", "half", "mul", "conv"], program.operators)
    assert blamed(evidence, WRONG, program) == {"mul": 1.0, "relu": 0.6}


CUSTOM = skeleton(
    {
        "x": "",
        "mul": "x",
        "softclip": operator("mul", target="planted.softclip.default"),
        "add": "softclip",
        "softclip_1": operator("add", target="planted.softclip.default"),
    }
)


def test_user_kernel_is_blamed_on_the_custom_operator() -> None:
    launches = (
        Launch("triton_poi_fused_mul_0", ("mul",)),
        Launch("softclip_kernel_0", ("softclip", "mul", "add")),
    )
    text = (
        "interpreter: illegal memory access: out-of-bounds load of 4 bytes in "
        "softclip_kernel_0 (user kernel softclip_kernel) through source"
    )
    found = Evidence(launches, text)
    assert blamed(found, FAULT, CUSTOM) == {"softclip": 1.0}  # not its neighbors
    # Triton and ptxas don't know of Inductor's number.
    for evidence in (
        Evidence(launches, "at 5:56:\ndef softclip_kernel(source, target):\n"),
        Evidence(launches, "out of resource: shared memory", kernel="softclip_kernel"),
    ):
        assert surest(blamed(evidence, BUILD, CUSTOM)) == {"softclip"}


NEIGHBOURS = ("mul", "softclip", "add")
STRAY = "interpreter: illegal memory access: out-of-bounds load of 4 bytes in {} ({})"


@pytest.mark.parametrize("kernel", ["softclip_kernel", "softclip_fwd_fused"])
@pytest.mark.parametrize("stage", [Stage.RUN, Stage.COMPILE])
def test_named_user_kernel_ranks_first_among_kernels_of_that_name(
    kernel: str, stage: Stage
) -> None:
    # As repros/cuda_ima_unmasked_kernel leaves it: Inductor names each of its kernels
    # beside a custom operator with that, too.
    launches: tuple[Launch, ...] = (
        Launch("triton_poi_fused_mul_0", NEIGHBOURS),
        Launch(f"{kernel}_0", NEIGHBOURS),
        Launch("triton_poi_fused_add_1", NEIGHBOURS),
    )
    text = STRAY.format(f"{kernel}_0", f"user kernel {kernel}")
    text = f"{text} through x (result of planted.other.default)"
    failure = Signature(Kind.IMA, stage, "out-of-bounds read")
    program = skeleton(
        {
            "x": "",
            "other": operator("x", target="planted.other.default"),
            "mul": "other",
            "softclip": operator("mul", target="planted.softclip.default"),
            "add": "softclip",
        }
    )
    found = rank_suspects(Evidence(launches, text), program, failure)
    assert [(s.node, s.weight) for s in found] == [("softclip", 1.0), ("other", 0.95)]


def test_suspects_of_equal_weight_are_shown_as_a_tie() -> None:
    def suspect(name: str, weight: float, why: str = f"in kernel {FUSED}") -> Suspect:
        return Suspect(name, weight, why, f"aten.{name}.default", "model.py:3")

    names = ("flip", "roll", "tanh", "gelu")
    equal = [suspect(name, 0.9) for name in names]
    last = [suspect("add", 0.5, "lies"), suspect("mul", 0.5, "raises")]
    first, alone, mixed = group_ties([*equal, suspect("tan", 0.6), *last])
    assert str(first) == (
        f"suspects: 4 operators of kernel {FUSED}: aten.flip, aten.roll, aten.tanh, ..."
    )
    assert str(alone) == f"suspect: aten.tan.default in kernel {FUSED}, model.py:3"
    assert [tie.is_explained for tie in (first, alone, mixed)] == [True, True, False]
    assert [tie.rank for tie in (first, alone, mixed)] == [1, 5, 6]
    (twice,) = group_ties([suspect("add", 1.0, "raises")] * 2)
    said = "suspects: 2 operators, each of which raises: aten.add (2 calls)"
    assert str(twice) == said
    inner = Suspect("cond", 0.9, f"in kernel {FUSED}", "cond")
    (both,) = group_ties([inner, suspect("add", 0.9)])
    assert str(both) == f"suspects: 2 operators of kernel {FUSED}: cond, aten.add"
    assert group_ties([]) == []


def test_operator_that_made_the_argument_is_among_the_suspects() -> None:
    text = (
        "interpreter: misaligned address in triton_poi_fused_add_1 (aten.add) through "
        "in_ptr3 (result of planted.softclip.default): declared divisible by 16"
    )
    launches = (Launch("triton_poi_fused_add_1", ("add",)),)
    weights = blamed(Evidence(launches, text), FAULT, CUSTOM)
    assert weights == {"softclip": 0.95, "softclip_1": 0.95, "add": 0.9}
    # Kernels made the argument, and ran well.
    other = text.replace("planted.softclip.default", "aten.relu, aten.mul")
    assert blamed(Evidence(launches, other), FAULT, CUSTOM) == {"add": 0.9}


def test_layout_assertion_is_blamed_on_the_named_operator() -> None:
    text = "expected size 4==5\nError in op: torch.ops.planted.softclip.default"
    assert set(blamed(Evidence(text=text), BOUNDS, CUSTOM)) == {
        "softclip",
        "softclip_1",
    }


def test_aten_exception_is_blamed_on_the_operator_in_its_frames() -> None:
    text = "not positive\nframe #5: at::_ops::gelu::redispatch(at::Tensor const&) + 0x8"
    weights = blamed(Evidence(LAUNCHES, text), Signature(Kind.EXCEPTION, Stage.RUN))
    assert weights == {"gelu": 0.7, "gelu_1": 0.7}


def test_branch_kernel_is_blamed_on_the_cond_operator() -> None:
    program = skeleton(
        {
            "x": "",
            "lt": "x",
            "branch": Node("", Role.SUBGRAPH),
            "cond": operator("lt branch x", operators=2),
            "expm1": "cond",
        }
    )
    # The branch has an expm1 as well: that is the one.
    launches = (
        Launch("cpp_fused_lt_0", ("lt",)),
        Launch("cpp_fused_expm1_1", ("cond", "lt", "expm1")),
    )
    printed = launched("before", "cpp_fused_expm1_1")
    weights = blamed(Evidence(launches, printed=printed), FAULT, program)
    assert surest(weights) == {"cond"}


def test_passing_kernel_of_one_branch_does_not_clear_cond() -> None:
    program = skeleton(
        {
            "x": "",
            "lt": "x",
            "branch": Node("", Role.SUBGRAPH),
            "cond": operator("lt branch x", operators=2),
        }
    )
    launches = (
        Launch("triton_poi_fused_lt_0", ("lt",)),
        Launch("triton_poi_fused_lt_1", ("cond", "lt")),
        Launch("triton_poi_fused_lt_2", ("cond", "lt")),
    )
    weights = blamed(Evidence(launches, "in triton_poi_fused_lt_2"), BUILD, program)
    assert surest(weights) == {"cond"}


def test_nodes_of_another_program_are_no_suspects() -> None:
    evidence = Evidence(
        (Launch("cpp_0", ("erfc",)),),
        "in cpp_0",
        (("arg0_1",), ("x",)),
        mismatched=("half",),
    )
    assert rank_suspects(evidence, PROGRAM, FAULT) == ()


def test_weights_are_above_zero_and_at_most_one() -> None:
    evidence = Evidence(
        LAUNCHES, f"in {FUSED}", (("tanh",),), mismatched=("add",), stopped="gelu"
    )
    for failure in (BOUNDS, FAULT, BUILD):
        found = rank_suspects(evidence, PROGRAM, failure)
        assert all(0 < s.weight <= 1 for s in found)
        assert [s.weight for s in found] == sorted(
            (s.weight for s in found), reverse=True
        )


def test_evidence_is_read_from_worker_traces() -> None:
    left = Traces((Launch("cpp_0", ("tanh",)),), "no", (("roll",),), "k")
    read = Evidence.from_traces(left)
    assert read == Evidence((Launch("cpp_0", ("tanh",)),), "no", (("roll",),), "k")
    assert Evidence.from_traces(Traces()) == Evidence()


def test_suspect_without_a_source_line_shows_the_rest() -> None:
    assert str(Suspect("a", 1.0, "lies", "aten.a.default")) == "aten.a.default lies"
