"""CUDA code without a GPU, in a process of its own: it changes Triton for good."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shrinkfx.failure.classify import observe
from shrinkfx.failure.signature import Kind
from shrinkfx.protocol.answers import Ending, Raised

HERE = Path(__file__).parent
ROOT = str(HERE.parents[1])
HEALTHY = [
    "pointwise",
    "reduction",
    "long_reduction",
    "embedding_and_index",
    "matmul_and_bias",
    "softmax",
    "layer_norm",
    "dynamic",
    "bfloat16",
    "scans",
    "buffer",
    "attention",
    "recurrent",
    "convolution",
    "expanded_input",
    "small_constant",
    "scalar_constant",
    "number_off_data",
    "nan_argmax",
    "eight_bits",
    "masked",
    "autotuned",
]

Ask = Callable[..., dict[str, Any]]

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        importlib.util.find_spec("numpy") is None,
        reason="Triton's interpreter needs numpy",
    ),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    path = os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(HERE / "interpreting.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "TORCHINDUCTOR_COMPILE_THREADS": "1"},
    )
    with process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="module")
def ask(server: Any) -> Ask:
    known: dict[str, dict[str, Any]] = {}

    def ask(name: str, probe: str = "real", arch: str = "sm_90") -> dict[str, Any]:
        line = f"{name} {probe} {arch}"
        if line not in known:
            server.stdin.write(line + "\n")
            server.stdin.flush()
            known[line] = json.loads(server.stdout.readline())
        assert "error" not in known[line], known[line]["error"]
        return known[line]

    return ask


def classified(message: str, stage: str) -> Any:
    answer = Raised("Report", message)
    ending = Ending(how="exit", code=0, stage=stage, answer=answer)
    return observe(ending).signature


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_programs_equal_eager_and_are_not_reported(ask: Ask, name: str) -> None:
    seen = ask(name)
    assert seen["findings"] == []
    assert seen["difference"] == ""
    assert seen["accesses"] > 0
    assert seen["sampled"] == []


@pytest.mark.parametrize("name", ["pointwise", "dynamic", "masked", "bad_index"])
def test_benchmarks_of_healthy_kernels_are_not_reported(ask: Ask, name: str) -> None:
    seen = ask(name, "hints")
    assert seen["findings"] == []
    assert seen["accesses"] > 0


def test_bad_index_is_an_assertion_and_an_overrun_of_the_right_input(ask: Ask) -> None:
    seen = ask("bad_index")
    asserted, loaded = seen["findings"]
    assert asserted["fault"] == "assert"
    assert "index out of bounds: 0 <= tmp" in asserted["message"]
    assert (loaded["fault"], loaded["role"]) == ("load", "input 0")
    assert (loaded["offset"], loaded["elements"], loaded["lanes"]) == (36, 30, 3)
    assert loaded["operators"] == ["aten.index", "aten.add"]
    assert loaded["source"].startswith("tmp6 = tl.load(in_ptr1")
    assert classified(seen["message"], "run").kind is Kind.ASSERT


def test_kernel_of_a_program_fails_alone_as_in_it(ask: Ask) -> None:
    told = ask("alone", "bad_index")
    assert told["kernel"].startswith("triton_poi_fused_add_index")
    assert told["alike"]
    assert "device-side assert: index out of bounds: 0 <= tmp" in told["said"]


def test_lying_operator_breaks_its_contract(ask: Ask) -> None:
    (finding,) = ask("lying_operator", "contract")["findings"]
    assert (finding["probe"], finding["fault"]) == ("contract", "layout")
    assert finding["role"] == "result of planted_cuda.lies.default"
    assert finding["message"].startswith("expected size 32==33")
    signature = classified(ask("lying_operator", "contract")["message"], "run")
    assert signature.kind is Kind.ASSERT


def test_lying_operator_leads_the_next_kernel_astray(ask: Ask) -> None:
    seen = ask("lying_operator")
    loaded, stored = seen["findings"]
    assert (loaded["fault"], stored["fault"]) == ("load", "store")
    assert loaded["role"] == "result of planted_cuda.lies.default"
    assert (loaded["offset"], loaded["elements"]) == (1024, 1024)
    assert classified(seen["message"], "run").kind is Kind.IMA


@pytest.mark.parametrize("probe", ["real", "hints"])
def test_user_kernel_without_a_mask_is_caught(ask: Ask, probe: str) -> None:
    seen = ask("unmasked", probe)
    assert [f["fault"] for f in seen["findings"]] == ["load", "store"]
    assert {f["probe"] for f in seen["findings"]} == {probe}
    loaded = seen["findings"][0]
    assert (loaded["argument"], loaded["offset"], loaded["lanes"]) == ("x", 100, 28)
    assert loaded["operators"] == ["user kernel copy_kernel"]


def test_assertion_of_a_user_kernel_is_honoured(ask: Ask) -> None:
    (finding,) = ask("assertion")["findings"]
    assert (finding["fault"], finding["message"]) == ("assert", "too large")
    assert finding["lanes"] == 64


def test_misaligned_result_of_an_operator_is_reported(ask: Ask) -> None:
    seen = ask("misaligned")
    (finding,) = seen["findings"]
    assert finding["fault"] == "misaligned"
    assert finding["role"] == "result of planted_cuda.shifted.default"
    assert classified(seen["message"], "run").kind is Kind.IMA


def test_kernel_right_on_real_inputs_may_stray_while_aoti_compiles(ask: Ask) -> None:
    assert ask("hinted")["findings"] == []
    seen = ask("hinted", "hints")
    (finding,) = seen["findings"]
    assert (finding["probe"], finding["fault"]) == ("hints", "load")
    assert (finding["argument"], finding["offset"]) == ("x", -1)
    assert "compile-time benchmark" in seen["message"]
    assert classified(seen["message"], "compile").kind is Kind.IMA


def test_benchmark_runs_each_configuration(ask: Ask) -> None:
    assert ask("half_masked", "real")["findings"] == []
    finding = ask("half_masked", "hints")["findings"][0]
    assert (finding["fault"], finding["argument"]) == ("load", "x")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("assembly", "inline assembly"), ("no_cpu_twin", "planted_cuda::on_gpu")],
)
def test_what_cannot_be_run_has_no_answer(ask: Ask, name: str, reason: str) -> None:
    assert reason in ask(name)["unsupported"]


def test_large_grid_is_sampled_and_says_so(ask: Ask) -> None:
    seen = ask("large")
    assert seen["findings"] == []
    (sampled,) = seen["sampled"]
    assert re.fullmatch(r"triton_poi_\w+: \d+ of 1\d{4} programs", sampled)


def test_index_from_a_sampled_launch_is_no_fault(ask: Ask) -> None:
    assert "some programs ran" in ask("large_index")["unsupported"]


def test_fault_beside_a_sampled_launch_is_found(ask: Ask) -> None:
    """That one has only read what the faulty kernel takes."""
    finding = ask("after_large")["findings"][0]
    assert finding["fault"] == "assert"


def test_number_that_a_program_holds_needs_no_gpu(ask: Ask) -> None:
    assert ask("scalar_constant", "hints")["findings"] == []
    assert ask("number_off_data", "hints")["findings"] == []


def test_input_with_other_strides_breaks_the_contract(ask: Ask) -> None:
    (finding,) = ask("other_strides", "contract")["findings"]
    assert (finding["fault"], finding["role"]) == ("layout", "input")
    assert "Error in op: input" in finding["message"]


@pytest.mark.parametrize("name", ["convolution", "attention", "dynamic"])
def test_healthy_programs_keep_their_contracts(ask: Ask, name: str) -> None:
    assert ask(name, "contract")["findings"] == []


@pytest.mark.parametrize(
    ("arch", "cc"), [("sm_80", 80), ("sm_90", 90), ("sm_100", 100)]
)
def test_code_is_generated_for_the_architecture(ask: Ask, arch: str, cc: int) -> None:
    seen = ask("pointwise", arch=arch)
    assert f"cc={cc}," in seen["wrapper"]
    assert seen["difference"] == ""


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("wraps", ["load", "store"]),
        ("does_not_wrap", []),
        ("block_pointer", []),
        ("block_pointer_unchecked", ["load"]),
        ("atomics", ["atomic"]),
        ("either", []),
        ("own_reduction", []),
        ("logic", []),
        ("wrong_logic", ["load"]),
        ("global_constant", []),
        ("quiet", []),
    ],
)
def test_kernels_launched_by_hand(ask: Ask, name: str, faults: list[str]) -> None:
    assert [f["fault"] for f in ask("kernel", name, "-")["findings"]] == faults


def test_wrapped_index_points_before_its_argument(ask: Ask) -> None:
    loaded = ask("kernel", "wraps", "-")["findings"][0]
    assert (loaded["argument"], loaded["offset"]) == ("x", -(1 << 31))
    assert loaded["program"] == [1 << 21, 0, 0]
