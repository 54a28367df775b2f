"""Which settings and variables a run has of the failing one, and where that is said."""

from __future__ import annotations

import functools
import math
import operator
from types import SimpleNamespace as Has

import pytest
import torch
from torch._inductor import lowering

from shrinkfx.intake.found import (
    is_setting,
    is_user_variable,
    is_variable,
    names_programs,
)
from shrinkfx.worker.intake.watching.origins import (
    find_entries,
    find_origins_in_inductor,
)
from shrinkfx.worker.intake.watching.programs import is_operator


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCHINDUCTOR_FREEZING", "1"),
        ("OMP_NUM_THREADS", "4"),
        ("CUDA_LAUNCH_BLOCKING", "1"),
    ],
)
def test_variable_that_tunes_pytorch_is_carried(name: str, value: str) -> None:
    assert is_variable(name, value)
    assert is_user_variable(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_LOGS", "+aot"),
        ("TORCH_TRACE", "traces"),
        ("TORCHDYNAMO_REPRO_AFTER", "aot"),
        ("TORCHELASTIC_RUN_ID", "7"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        ("TORCHINDUCTOR_COMPILE_THREADS", "1"),
        ("TORCHINDUCTOR_CACHE_DIR", "cache"),
        ("TORCH_HUB_TOKEN", "abc"),
        ("CUDA_HOME", "/usr/local/cuda"),
        ("HOME", "me"),
    ],
)
def test_variable_for_logs_paths_or_secrets_is_not_carried(
    name: str, value: str
) -> None:
    assert not is_variable(name, value)
    assert not is_user_variable(name, value)


def test_compiler_variable_is_carried_from_user_script_only() -> None:
    for value in ("g++-12", "/usr/bin/clang++"):
        assert is_user_variable("CXX", value)
        assert not is_variable("CXX", value)
    assert names_programs("cpp.cxx")
    assert not names_programs("max_autotune")


def test_output_path_is_no_setting_of_a_run() -> None:
    left_out = (
        *("aot_inductor.output_path", "aot_inductor.metadata", "trace.enabled"),
        "aot_inductor.repro_level",
    )
    assert not any(map(is_setting, left_out))
    assert is_setting("aot_inductor.use_runtime_constant_folding")


@pytest.mark.parametrize(
    ("op", "target", "value", "is_one"),
    [
        ("placeholder", "x", Has(), False),
        ("call_function", operator.getitem, Has(dtype="float32"), False),
        ("call_function", operator.mul, Has(), False),
        ("call_function", math.floor, Has(), False),
        ("call_function", operator.mul, Has(dtype="float32"), True),
        (
            "call_function",
            Has(__name__="sym_numel.default"),
            Has(),
            False,
        ),
        (
            "call_function",
            Has(__name__="sym_max", __module__="torch"),
            3,
            False,
        ),
        (
            "call_function",
            Has(__name__="relu.default"),
            Has(),
            True,
        ),
        ("call_function", None, None, True),
    ],
)
def test_size_arithmetic_is_not_counted_as_operator(
    op: str, target: object, value: object, is_one: bool
) -> None:
    node = Has(op=op, target=target, meta={"val": value})
    assert is_operator(node) is is_one


def test_lowering_that_wraps_the_one_of_pytorch_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cosh = torch.ops.aten.cosh.default
    original = lowering.lowerings[cosh]
    monkeypatch.setitem(lowering.lowerings, cosh, original)
    lowering.register_lowering(cosh)(functools.wraps(original)(lambda x: original(x)))
    found = [e.place for e in find_entries() if e.origin.module == __name__]
    assert "torch._inductor.lowering.lowerings[torch.ops.aten.cosh.default]" in found


def test_module_that_wraps_a_function_of_pytorch_is_carried() -> None:
    """``functools.wraps`` gives the wrapper the ``__module__`` of PyTorch."""

    @functools.wraps(torch.nn.functional.relu)
    def lowering() -> None: ...

    origins = find_origins_in_inductor([lowering], [])
    assert __name__ in [origin.module for origin in origins]
