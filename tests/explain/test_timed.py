"""Which size a kernel was timed with is why it strays."""

from __future__ import annotations

from dataclasses import replace

from shrinkfx.explain.access import wrong_sizes
from shrinkfx.explain.compiled_view import CompiledView
from shrinkfx.protocol.compiled_program_view import (
    Anatomy,
    KernelLaunch,
    KernelText,
    StrayAccess,
    TimedSize,
)
from shrinkfx.testing import chain, whole

TEXT = """def triton_fused(in_ptr0, in_ptr1, out_ptr0, ks0, ks1, xnumel, XBLOCK):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = (xindex % ks0)
    x1 = xindex // ks1
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.load(in_ptr1 + (xindex), xmask)
    tmp2 = tmp0 + x1
    tl.store(out_ptr0 + (x0), tmp2, xmask)"""

PASSED = ("buf0", "buf1", "buf2", "ps0", "ps1", "xnumel")

PS0 = TimedSize(
    kernel="triton_fused",
    name="ps0",
    graph="true_graph_0",
    stands_for="s1*s2",
    meant=4,
    searched_graph="",
    there="",
    value=8192,
    is_fallback=True,
)
PS1 = replace(PS0, name="ps1", stands_for="s3", there="s4", value=9, is_fallback=False)


def explain_timed_sizes(at: str, *timed: TimedSize) -> str:
    """Say why the line that begins so strays."""
    lines = [line.strip() for line in TEXT.split("\n")]
    line = next(n for n, text in enumerate(lines) if text.startswith(at))
    stray = StrayAccess("load", "triton_fused", False, line, TEXT, made_up=True)
    anatomy = Anatomy(
        kernels=(KernelText("triton_fused", TEXT, inside=True),),
        launches=(KernelLaunch("triton_fused", PASSED),) * 2,
        out_of_bounds=stray,
        timed=timed,
    )
    return wrong_sizes(CompiledView(anatomy, whole(chain("x", "relu"))), stray)


def test_wrong_benchmark_size_is_reported_if_the_address_uses_it() -> None:
    assert explain_timed_sizes("tmp0", PS0, PS1) == (
        "AOTInductor benchmarks kernel triton_fused with ks0 = 8192 instead of "
        "ps0 = s1*s2 = 4: generate_example_arg_value looks up the precomputed sizes "
        "of true_graph_0 in the table of the graph around it, where ps0 is unknown "
        "and replaced by unbacked_symint_fallback."
    )


def test_wrong_benchmark_size_is_ignored_if_not_in_the_address() -> None:
    assert explain_timed_sizes("tmp1", PS0, PS1) == ""
    # What a store writes is no part of where.
    assert "ks1" not in explain_timed_sizes("tl.store", PS0, PS1)
    assert explain_timed_sizes("tl.store", PS1) == ""
    assert explain_timed_sizes("tmp0") == ""


def test_wrong_mask_size_is_reported_with_the_searched_graph() -> None:
    xnumel = replace(PS1, name="xnumel", stands_for="s1*s2*3", searched_graph="body_0")
    found = explain_timed_sizes("tmp1", xnumel)
    assert "with xnumel = 9 instead of xnumel = s1*s2*3 = 4: " in found
    assert found.endswith("in the table of body_0, where xnumel is s4.")


def test_two_wrong_sizes_are_named_and_others_counted() -> None:
    mask = replace(PS1, name="xnumel")
    index = replace(PS0, name="buf0")
    found = explain_timed_sizes("tmp0", PS0, mask, index)
    assert "and 1 more" in found
    assert len([word for word in found.split() if word == "instead"]) == 2
    assert explain_timed_sizes("tmp0", replace(PS0, kernel="another")) == ""
