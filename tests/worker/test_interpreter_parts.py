"""Parts of the interpreter that need no program."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from shrinkfx.protocol.choices import Probe
from shrinkfx.worker.forkserver.supervise import describe_error
from shrinkfx.worker.interpreter.backend import check_accesses
from shrinkfx.worker.interpreter.findings import Fault, KernelFinding, Report
from shrinkfx.worker.interpreter.launch import MAX_PROGRAMS, choose_programs
from shrinkfx.worker.interpreter.memory_checks import (
    CHECKER,
    Roles,
    add_bfloat16,
    allocate,
    copy_to_exact_size,
    map_sparse_vector,
)
from shrinkfx.worker.interpreter.repro_script import retarget_strings
from shrinkfx.worker.interpreter.retarget import (
    find_unsupported,
    read_operators,
    retarget,
)

# --- memory


def test_allocation_has_exact_size_and_is_poisoned() -> None:
    made = allocate((3, 4), (5, 1), torch.float32)
    assert made.stride() == (5, 1)
    assert made.untyped_storage().nbytes() == 14 * 4
    assert made.isnan().all()
    assert allocate((2,), (1,), torch.int64).tolist() == [0x7B7B7B7B7B7B7B7B] * 2
    assert allocate((0, 3), (3, 1), torch.int8).untyped_storage().nbytes() == 0


def test_copy_of_a_view_excludes_the_rest_of_its_storage() -> None:
    whole = torch.arange(100.0)
    copied = copy_to_exact_size(whole[10:20:3])
    assert copied.tolist() == [10.0, 13.0, 16.0, 19.0]
    assert copied.stride() == (3,)
    assert copied.untyped_storage().nbytes() == 10 * 4
    assert copied.data_ptr() % 16 == 0


def test_copy_of_an_expanded_tensor_shares_its_elements() -> None:
    copied = copy_to_exact_size(torch.arange(3.0).expand(4, 3))
    assert copied.stride() == (0, 1)
    assert copied[2].tolist() == [0.0, 1.0, 2.0]


def test_sparse_vector_of_32_gib_can_be_mapped() -> None:
    vector = map_sparse_vector(1 << 35, torch.int8)
    vector[-1] = 7
    assert (vector[0].item(), vector[-1].item()) == (0, 7)


def test_result_role_does_not_replace_an_input_role() -> None:
    roles, given, made = Roles(), torch.ones(2), torch.ones(2)
    roles.set_role(given, "input 0")
    roles.set_result_role(given, ["aten.add_"])
    roles.set_result_role(made, ["aten.add", "aten.mul"])
    assert roles.get_role(given.view(1, 2)) == "input 0"
    assert roles.get_role(made) == "result of aten.add, aten.mul"


# --- atomic additions


def bits(values: list[float]) -> NDArray[np.uint16]:
    return torch.tensor(values, dtype=torch.bfloat16).view(torch.uint16).numpy()


def add(cells: Tensor, at: list[int], values: list[float], mask: list[bool]) -> Tensor:
    addresses = np.array([cells.data_ptr() + 2 * i for i in at], dtype=np.uint64)
    before = add_bfloat16(addresses, bits(values), np.array(mask))
    return torch.from_numpy(before).view(torch.bfloat16)


def test_atomic_add_applies_only_in_active_lanes() -> None:
    cells = torch.tensor([1, 2, 3], dtype=torch.bfloat16)
    before = add(cells, [0, 1, 2], [10, 20, 30], [True, False, True])
    assert cells.tolist() == [11, 2, 33]
    assert before.tolist() == [1, 0, 3]


def test_atomic_add_accumulates_all_lanes_with_one_address() -> None:
    cells = torch.tensor([1], dtype=torch.bfloat16)
    before = add(cells, [0, 0, 0], [2, 3, 4], [True] * 3)
    assert cells.tolist() == [10]
    assert before.tolist() == [1, 3, 6]


@pytest.mark.parametrize("seed", range(3))
def test_atomic_add_rounds_as_torch_does(seed: int) -> None:
    torch.manual_seed(seed)
    left = (torch.randn(500) * 10 ** torch.randn(500)).to(torch.bfloat16)
    right = torch.randn(500).to(torch.bfloat16)
    left[0], left[1], left[2] = float("inf"), float("nan"), -float("inf")
    expected = left + right
    add(left, list(range(500)), right.tolist(), [True] * 500)
    assert torch.equal(left.nan_to_num(7.0), expected.nan_to_num(7.0))


# --- grids


def test_small_grid_is_run_completely() -> None:
    chosen, some = choose_programs((3, 2, 1), [64])
    assert list(chosen) == [(x, y, 0) for x in range(3) for y in range(2)]
    assert some == ""


def test_large_grid_sample_includes_ends_and_index_wraps() -> None:
    count = (1 << 33) // 1024
    chosen, some = choose_programs((count, 1, 1), [1024])
    found = {x for x, _, _ in chosen}
    wraps = [(1 << 31) // 1024, (1 << 32) // 1024]
    assert {0, count - 1, *wraps, *(w - 1 for w in wraps)} <= found
    assert some == f"{len(found)} of {count} programs"
    assert len(found) < MAX_PROGRAMS


def test_large_grid_sample_is_deterministic_and_covers_each_axis() -> None:
    grid = (500, 300, 2)
    chosen = list(choose_programs(grid, [])[0])
    assert chosen == list(choose_programs(grid, [])[0])
    assert {(499, 0, 0), (0, 299, 0), (0, 0, 1), (499, 299, 1)} <= set(chosen)
    assert all(place < grid for place in chosen)


# --- retargeted code


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


# --- retargeted scripts


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('x = y.to("cuda")', 'x = y.to("cpu")'),
        (
            "torch.zeros(3, device='cuda:1'), f(\"cuda:0\")",
            'torch.zeros(3, device="cpu"), f("cpu")',
        ),
        ('print("cuda is a word", "cudart", cuda)  # "cuda"', None),
        ('text = """cuda\nand more"""\nz.to("cuda")\n', None),
    ],
)
def test_only_cuda_device_strings_are_replaced(before: str, after: str | None) -> None:
    expected = after or before.replace('z.to("cuda")', 'z.to("cpu")')
    assert retarget_strings(before) == expected


@pytest.mark.parametrize("quote", ['"', "'"])
def test_cuda_kernel_does_not_replace_the_cpu_kernel_of_an_operator(quote: str) -> None:
    only = "@op.register_kernel('cuda')\ndef _(x): return 1\n"
    assert 'register_kernel("cpu")' in retarget_strings(only)
    both = f"{only}@op.register_kernel({quote}cpu{quote})\ndef _(x): return 2\n"
    assert retarget_strings(both) == both


def test_retargeting_keeps_line_numbers() -> None:
    before = 'a = 1\nb = x.to("cuda")\n\n\nc = x.to("cuda"); d = x.to("cuda")\n'
    assert len(retarget_strings(before).splitlines()) == len(before.splitlines())
    assert "cuda" not in retarget_strings(before)


# --- notes of a report


def test_report_notes_kernels_that_were_only_partly_run() -> None:
    def strays() -> None:
        with check_accesses(Probe.REAL, {}):
            CHECKER.unseen.append("k: only 40 of 99999 programs ran")
            raise Report(
                [KernelFinding(probe=Probe.REAL, fault=Fault.LOAD, kernel="k")]
            )

    with pytest.raises(Report) as caught:
        strays()
    assert describe_error(caught.value).notes == ("k: only 40 of 99999 programs ran",)
    assert describe_error(ValueError("no")).notes == ()
