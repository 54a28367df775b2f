"""Which variables of a shell a repro is tried without."""

from __future__ import annotations

from shrinkfx.run.folder import ONLY_SHOWN, inherited_variables, variables_to_test

SHELL = {
    "TORCH_LOGS": "+dynamo",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
    "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": "2",
    "OMP_NUM_THREADS": "4",
    "TORCHINDUCTOR_CACHE_DIR": "/somebody/has/room",
    "HOME": "me",
}


def test_variables_that_only_affect_output_are_not_inherited() -> None:
    assert inherited_variables(SHELL) == {
        "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": "2",
        "OMP_NUM_THREADS": "4",
    }
    assert not inherited_variables(
        {name: "1" for names in ONLY_SHOWN.values() for name in names}
    )


def test_variables_to_test_include_those_set_by_the_user() -> None:
    given = {"TORCH_LOGS": "+aot", "AOTI_RUNTIME_CHECK_INPUTS": "1"}
    assert variables_to_test(given, SHELL) == [
        "AOTI_RUNTIME_CHECK_INPUTS",
        "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER",
        "OMP_NUM_THREADS",
        "TORCH_LOGS",
    ]
    assert variables_to_test({}, {"HOME": "me"}) == []
    assert variables_to_test({"PYTHONHASHSEED": "3", "A": "b"}, {}) == ["A"]
