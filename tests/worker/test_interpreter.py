"""CUDA code without a GPU, in a process of its own: it changes Triton for good."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.healthy_models import MODELS, ROUNDED, SIZES

from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Kind
from shrinkfx.protocol.answers import Ending, Raised

HERE = Path(__file__).parent
ROOT = str(HERE.parents[1])
NAMES = """
pointwise reduction long_reduction embedding_and_index matmul_and_bias softmax
layer_norm dynamic bfloat16 scans buffer attention recurrent recurrent_with_state
convolution expanded_input small_constant scalar_constant number_off_data nan_argmax
eight_bits arctangent half_of_a_dim empty_input flexible_attention masked autotuned
no_bias one_row
"""
HEALTHY = NAMES.split()
"""Programs of ``cuda_programs.py``."""

USUAL_MODELS = [
    ("dlrm", "float32", "dynamic"),
    ("transformer", "bfloat16", "static"),
    ("bags", "float32", "dynamic"),
    ("scattered", "float32", "static"),
    ("several_dims", "float32", "dynamic"),
]
OTHER_MODELS = [
    case
    for case in itertools.product(
        MODELS, ("float32", "bfloat16"), ("static", "dynamic")
    )
    if case not in USUAL_MODELS and (case[1] == "float32" or case[0] in ROUNDED)
]

Ask = Callable[..., dict[str, Any]]

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("numpy") is None,
        reason="Triton's interpreter needs numpy",
    ),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    path = os.pathsep.join([ROOT, f"{ROOT}/tests", os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(HERE / "interpreter_server.py")],
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

    def ask(
        name: str, probe: str = "real", arch: str = "sm_90", more: str = ""
    ) -> dict[str, Any]:
        line = f"{name} {probe} {arch} {more}"
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
    return classify_ending(ending).signature


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_programs_equal_eager_and_are_not_reported(ask: Ask, name: str) -> None:
    seen = ask(name)
    assert seen["findings"] == []
    assert seen["difference"] == ""
    assert seen["accesses"] > 0
    assert seen["unseen"] == []


@pytest.mark.parametrize("name", ["pointwise", "dynamic", "masked", "bad_index"])
def test_benchmarks_of_healthy_kernels_are_not_reported(ask: Ask, name: str) -> None:
    seen = ask(name, "hints")
    assert seen["findings"] == []
    assert seen["accesses"] > 0


def test_bad_index_fails_an_assertion_and_overruns_its_input(ask: Ask) -> None:
    seen = ask("bad_index")
    asserted, loaded = seen["findings"]
    assert asserted["fault"] == "assert"
    assert "index out of bounds: 0 <= tmp" in asserted["message"]
    assert (loaded["fault"], loaded["role"]) == ("load", "input 0")
    assert (loaded["offset"], loaded["elements"], loaded["lanes"]) == (36, 30, 3)
    assert loaded["operators"] == ["aten.index", "aten.add"]
    assert loaded["source"].startswith("tmp6 = tl.load(in_ptr1")
    assert classified(seen["message"], "run").kind is Kind.ASSERT


LIES = "result of planted_cuda.lies.default"


@pytest.mark.parametrize(
    ("name", "probe", "expected", "kind"),
    [
        (
            *("lying_operator", "contract"),
            [{"probe": "contract", "fault": "layout", "role": LIES}],
            Kind.ASSERT,
        ),
        # The mismatch causes a later out-of-bounds access.
        (
            *("lying_operator", "real"),
            [
                {"fault": "load", "role": LIES, "offset": 1024, "elements": 1024},
                {"fault": "store"},
            ],
            Kind.IMA,
        ),
        ("assertion", "real", [{"fault": "assert", "message": "too large"}], None),
        (
            *("misaligned", "real"),
            [{"fault": "misaligned", "role": "result of planted_cuda.shifted.default"}],
            Kind.IMA,
        ),
        # It shows in the compile-time benchmark only.
        ("hinted", "real", [], None),
        (
            *("hinted", "hints"),
            [{"probe": "hints", "fault": "load", "argument": "x", "offset": -1}],
            Kind.IMA,
        ),
    ],
)
def test_fault_is_found_by_the_probe(
    ask: Ask, name: str, probe: str, expected: list[dict[str, Any]], kind: Kind | None
) -> None:
    seen = ask(name, probe)
    for finding, fields in zip(seen["findings"], expected, strict=True):
        assert {key: finding[key] for key in fields} == fields
    if kind is not None:
        stage = "compile" if probe == "hints" else "run"
        assert classified(seen["message"], stage).kind is kind


def test_findings_say_what_was_expected_and_where(ask: Ask) -> None:
    (finding,) = ask("lying_operator", "contract")["findings"]
    assert finding["message"].startswith("expected size 32==33")
    assert ask("assertion")["findings"][0]["lanes"] == 64
    assert "compile-time benchmark" in ask("hinted", "hints")["message"]


def test_kernel_that_fails_in_eager_is_not_reported_for_its_benchmark(ask: Ask) -> None:
    found = ask("wrong_in_eager", "hints", more="in_eager=1")
    assert found["message"].startswith("interpreter: illegal memory access")


def test_wrong_dtype_of_an_operator_causes_an_out_of_bounds_access(ask: Ask) -> None:
    """The kernel reads float32, for which it was compiled, from a tensor of float16."""
    loaded = ask("lying_dtype")["findings"][0]
    assert (loaded["fault"], loaded["item_bytes"]) == ("load", 4)
    assert loaded["role"] == "result of planted_cuda.rounded.default"
    assert (loaded["offset"], loaded["elements"]) == (528, 528)


def test_wrong_dtype_of_an_operator_breaks_the_contract(ask: Ask) -> None:
    seen = ask("lying_dtype", "contract")
    if "assert_tensor_metadata" not in seen["wrapper"]:
        pytest.skip("Inductor checks dtypes since torch 2.14")
    assert seen["findings"][0]["message"].startswith("expected dtype torch.float32 but")
    signature = classified(seen["message"], "run")
    assert signature.detail == "layout of torch.ops.planted_cuda.rounded.default"


@pytest.mark.parametrize("probe", ["real", "hints"])
def test_out_of_bounds_access_of_an_unmasked_user_kernel_is_found(
    ask: Ask, probe: str
) -> None:
    seen = ask("unmasked", probe)
    assert [f["fault"] for f in seen["findings"]] == ["load", "store"]
    assert {f["probe"] for f in seen["findings"]} == {probe}
    loaded = seen["findings"][0]
    assert (loaded["argument"], loaded["offset"], loaded["lanes"]) == ("x", 100, 28)
    assert loaded["operators"] == ["user kernel copy_kernel"]


@pytest.mark.parametrize("probe", ["real", "hints"])
def test_each_configuration_is_run_and_the_faulty_one_named(
    ask: Ask, probe: str
) -> None:
    seen = ask("half_masked", probe)
    finding = seen["findings"][0]
    assert (finding["fault"], finding["argument"]) == ("load", "x")
    assert finding["configuration"] == "configuration 2 of 2: block=64, masked=0"
    assert "28 lanes, configuration 2 of 2: block=64, masked=0] at" in seen["message"]
    stage = "run" if probe == "real" else "compile"
    assert classified(seen["message"], stage).detail == "out-of-bounds read"


@pytest.mark.parametrize(
    "name", ["gemm_template", "batched_template", "convolution_template"]
)
def test_templates_equal_eager_and_unrun_templates_are_noted(
    ask: Ask, name: str
) -> None:
    seen = ask(name)
    assert "= async_compile.triton('triton_tem_" in seen["wrapper"]
    assert seen["findings"] == []
    assert seen["difference"] == ""
    (unseen,) = seen["unseen"]
    assert re.fullmatch(r"\w+: only the first of \d+ templates ran", unseen)


def test_flexible_attention_uses_a_template(ask: Ask) -> None:
    assert "= async_compile.triton('triton_tem_" in ask("flexible_attention")["wrapper"]


@pytest.mark.parametrize("name", ["gemm_template", "flexible_attention"])
def test_benchmarks_of_templates_are_not_reported(ask: Ask, name: str) -> None:
    seen = ask(name, "hints")
    assert seen["findings"] == []
    assert seen["accesses"] > 0


def test_overrun_of_a_template_is_found(ask: Ask) -> None:
    loaded = ask("short_for_a_template")["findings"][0]
    assert loaded["kernel"].startswith("triton_tem_")
    assert (loaded["fault"], loaded["elements"]) == ("load", 63 * 64)
    assert loaded["role"] == "result of planted_cuda.lies.default"


def test_inline_assembly_by_inductor_is_run(ask: Ask) -> None:
    seen = ask("arctangent")
    if "inline_asm_elementwise" not in seen["wrapper"]:
        pytest.skip("this version of Inductor calls a function of the device library")
    assert seen["unseen"] == []
    assert seen["difference"] == ""


def test_operator_runs_its_cuda_kernel_if_it_has_no_other(ask: Ask) -> None:
    message = ask("cuda_operator")["message"]
    assert "out-of-bounds" in message
    assert "copy_kernel" in message


def test_operator_whose_cuda_kernel_needs_a_gpu_is_unsupported(ask: Ask) -> None:
    why = ask("no_cpu_twin")["unsupported"]
    assert why.startswith("the CUDA kernel of planted_cuda::on_device fails on CPU")


@pytest.mark.parametrize("probe", ["real", "hints"])
def test_operator_that_needs_a_gpu_is_no_compile_error(ask: Ask, probe: str) -> None:
    seen = ask("needs_a_driver", probe)
    assert "code generation needs a GPU: " in seen["unsupported"]


def test_input_that_must_stay_on_the_cpu_is_no_compile_error(ask: Ask) -> None:
    assert "must be on CPU" in ask("needs_the_cpu")["unsupported"]


def test_operator_without_a_cuda_kernel_is_no_compile_error(ask: Ask) -> None:
    if not torch._C._dispatch_has_kernel_for_dispatch_key("aten::mm", "CUDA"):
        pytest.skip("this PyTorch has no CUDA kernels")
    seen = ask("no_cuda_kernel", more="falls_back=0")
    assert "aten::histogram.bin_ct has no CUDA kernel" in seen["unsupported"]


@pytest.mark.parametrize("probe", ["real", "hints"])
def test_unsupported_kernel_is_skipped_and_named(ask: Ask, probe: str) -> None:
    seen = ask("assembly", probe)
    assert seen["findings"] == []
    (unseen,) = seen["unseen"]
    assert unseen.startswith("assembly_kernel")
    assert "inline assembly that Inductor does not write: 'mov.b32" in unseen
    assert "difference" not in seen


def test_fault_is_found_in_a_program_with_an_unsupported_kernel(ask: Ask) -> None:
    asserted, loaded = ask("beside_assembly")["findings"]
    assert "index out of bounds" in asserted["message"]
    assert loaded["role"] == "input 1"


def test_buffer_state_carries_over_between_calls(ask: Ask) -> None:
    assert ask("fourth_call", more="calls=3")["difference"] == ""
    asserted, loaded = ask("fourth_call", more="calls=4")["findings"]
    assert "index out of bounds" in asserted["message"]
    assert loaded["role"] == "input 0"


@pytest.mark.parametrize(
    ("name", "word"), [("makes_nan", "NaN"), ("makes_infinity", "INF")]
)
def test_nan_assert_messages_match_aotinductor(ask: Ask, name: str, word: str) -> None:
    said = ask(name)["refused"]
    assert said.startswith(f"At least one {word} in buf")
    assert classified(said, "run").kind is Kind.CHECK_INPUTS


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("too_many_rows", "dim value is too large"),
        ("other_dtype", "unmatched dtype"),
        ("other_strides", "unmatched stride value"),
    ],
)
def test_inputs_are_checked_if_the_variable_is_set(
    ask: Ask, name: str, detail: str
) -> None:
    said = ask(name, more="AOTI_RUNTIME_CHECK_INPUTS=1")["refused"]
    assert classified(said, "run").kind is Kind.CHECK_INPUTS
    assert classified(said, "run").detail == detail


@pytest.mark.parametrize("name", ["other_dtype", "other_strides"])
def test_inputs_are_not_checked_by_default(ask: Ask, name: str) -> None:
    assert "refused" not in ask(name)


def test_inputs_that_match_the_declaration_pass_the_check(ask: Ask) -> None:
    assert ask("dynamic", more="AOTI_RUNTIME_CHECK_INPUTS=1")["difference"] == ""


def test_large_grid_is_sampled_and_noted(ask: Ask) -> None:
    seen = ask("large")
    assert seen["findings"] == []
    sampled, untried = seen["unseen"]
    assert re.fullmatch(r"triton_poi_\w+: only \d+ of 1\d{4} programs ran", sampled)
    assert re.fullmatch(r"further configurations of triton_poi_\w+", untried)


def test_index_from_a_sampled_launch_is_no_fault(ask: Ask) -> None:
    seen = ask("large_index")
    assert seen["findings"] == []
    (left,) = [text for text in seen["unseen"] if "has left unwritten" in text]
    assert "gather" in left


def test_fault_after_a_sampled_launch_is_found(ask: Ask) -> None:
    """That one has only read what the faulty kernel takes."""
    finding = ask("after_large")["findings"][0]
    assert finding["fault"] == "assert"


def test_scalar_constant_needs_no_gpu(ask: Ask) -> None:
    assert ask("scalar_constant", "hints")["findings"] == []
    assert ask("number_off_data", "hints")["findings"] == []


@pytest.mark.parametrize("name", ["other_strides", "second_with_other_strides"])
def test_input_with_other_strides_breaks_the_contract(ask: Ask, name: str) -> None:
    (finding,) = ask(name, "contract")["findings"]
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
        ("descriptor", []),
        ("descriptor_too_long", ["load"]),
        ("descriptor_of_host", []),
        ("descriptor_of_host_too_long", ["load"]),
        ("atomics", ["atomic"]),
        ("either", []),
        ("own_reduction", []),
        ("logic", []),
        ("wrong_logic", ["load"]),
        ("chain", []),
        ("global_constant", []),
        ("quiet", []),
    ],
)
def test_hand_launched_kernels_give_the_expected_faults(
    ask: Ask, name: str, faults: list[str]
) -> None:
    assert [f["fault"] for f in ask("kernel", name, "-")["findings"]] == faults


@pytest.mark.parametrize(
    ("name", "faults"), [("block_pointer", []), ("block_pointer_unchecked", ["load"])]
)
def test_block_pointer_faults_are_found(ask: Ask, name: str, faults: list[str]) -> None:
    answer = ask("kernel", name, "-")
    if answer["unseen"]:  # Triton 3.9 has removed them
        (unseen,) = answer["unseen"]
        assert "Block pointers have been removed" in unseen
        pytest.skip(unseen)
    assert [f["fault"] for f in answer["findings"]] == faults


@pytest.mark.parametrize("name", ["too_long", "of_host_too_long"])
def test_overrun_of_a_descriptor_into_the_next_tensor_is_detected(
    ask: Ask, name: str
) -> None:
    """The overrun stays inside the next tensor, which is another argument."""
    loaded = ask("kernel", f"descriptor_{name}", "-")["findings"][0]
    assert (loaded["offset"], loaded["elements"], loaded["lanes"]) == (60, 60, 12)


def test_wrapped_index_points_before_its_argument(ask: Ask) -> None:
    loaded = ask("kernel", "wraps", "-")["findings"][0]
    assert (loaded["argument"], loaded["offset"]) == ("x", -(1 << 31))
    assert loaded["program"] == [1 << 21, 0, 0]


def check_healthy_model(ask: Ask, name: str, precision: str, shapes: str) -> None:
    """Run all probes; each finding is an error."""
    answer = ask(f"healthy {name}", precision, shapes)
    assert answer["accesses"] >= 10  # of the benchmark and of the last size
    assert answer["sizes"] == (len(SIZES) if shapes == "dynamic" else 1)


@pytest.mark.parametrize(("name", "precision", "shapes"), USUAL_MODELS)
def test_healthy_model_gives_no_alarm(
    ask: Ask, name: str, precision: str, shapes: str
) -> None:
    check_healthy_model(ask, name, precision, shapes)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision", "shapes"), OTHER_MODELS)
def test_every_healthy_model_gives_no_alarm(
    ask: Ask, name: str, precision: str, shapes: str
) -> None:
    check_healthy_model(ask, name, precision, shapes)
