"""Settings under which code for CUDA is generated."""

from __future__ import annotations

from shrinkfx.worker.interpreter.cuda_source import list_overridden_options


def test_overridden_options_are_listed() -> None:
    chosen = {"max_autotune": True, "allow_buffer_reuse": True, "size_asserts": True}
    assert list_overridden_options(chosen) == ["allow_buffer_reuse"]
    assert list_overridden_options({}) == []
