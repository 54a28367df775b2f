"""Settings under which code for CUDA is generated."""

from __future__ import annotations

from shrinkfx.worker.interpreter.codegen.cuda_source import overridden


def test_options_that_cannot_be_as_chosen_are_named() -> None:
    chosen = {"max_autotune": True, "epilogue_fusion": False, "size_asserts": True}
    assert overridden(chosen) == ["max_autotune"]
    assert overridden({}) == []
