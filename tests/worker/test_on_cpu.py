"""Generated text that names a GPU, rewritten."""

from __future__ import annotations

import pytest

from shrinkfx.worker.interpreter.retarget import (
    find_unsupported,
    read_operators,
    retarget,
)

SOURCE = """\
from torch._C import _cuda_getCurrentRawStream as get_raw_stream
# Topologically Sorted Source Nodes: [relu, add], Original ATen: [aten.relu, aten.add]
triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0', '''
triton_helpers.set_driver_to_gpu()
    triton_meta={'device': DeviceProperties(type='cuda', index=0)}
''', device_str='cuda')
# Unsorted Source Nodes: [cos], Original ATen: [aten.cos]
triton_poi_fused_cos_1 = async_compile.triton('triton_poi_fused_cos_1', '''
''', device_str='cuda')
triton_poi_fused_2 = async_compile.triton('triton_poi_fused_2', '''
''', device_str='cuda')
# Original path: model.py:3
copy_kernel_0 = async_compile.triton('copy_kernel', '''
''', device_str='cuda')
def call(args):
    assert_size_stride(arg0_1, (5, 33), (33, 1), 'input')
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf1 = torch.ops.aten.full.default([2], 1, device=device(type='cuda', index=0))
        arg1_1 = rand_strided((5, ), (1, ), device='cuda:0', dtype=torch.float32)
"""


def test_retargeted_code_keeps_line_numbers_and_kernel_devices() -> None:
    lines = retarget(SOURCE).splitlines()
    assert len(lines) == len(SOURCE.splitlines())
    assert lines[0] == "get_raw_stream = lambda *_: 0"
    assert lines[4] == SOURCE.splitlines()[4]
    assert lines[15].strip() == (
        "arg0_1 = assert_size_stride(arg0_1, (5, 33), (33, 1), 'input')"
    )
    compile("\n".join(lines), "lines", "exec")
    host = "\n".join(line for line in lines[14:])
    assert "cuda" not in host


def test_operators_of_each_kernel_are_read_from_the_source() -> None:
    assert read_operators(SOURCE) == {
        "triton_poi_fused_add_relu_0": ("aten.relu", "aten.add"),
        "triton_poi_fused_cos_1": ("aten.cos",),
        "triton_poi_fused_2": (),
        "copy_kernel_0": ("user kernel copy_kernel",),
    }


def test_kernels_that_are_not_triton_are_reported_as_unsupported() -> None:
    assert find_unsupported(SOURCE) == ""
    line = "cutlass_0 = async_compile.cutlass('cutlass_0'"
    assert find_unsupported(SOURCE + line) == "cutlass_0 is a kernel of kind cutlass"


@pytest.mark.parametrize(
    "line",
    [
        "triton_tem_fused_mm_0 = async_compile.triton('triton_tem_fused_mm_0'",
        "    x = tl.inline_asm_elementwise('mov', '=r,r', [y]",
    ],
)
def test_templates_and_inline_assembly_are_supported(line: str) -> None:
    assert find_unsupported(SOURCE + line) == ""
