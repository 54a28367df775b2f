"""A script for CUDA, made to run where there is none."""

from __future__ import annotations

import pytest

from shrinkfx.worker.interpreter.repro_script import retarget_strings


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


def test_retargeting_keeps_line_numbers() -> None:
    before = 'a = 1\nb = x.to("cuda")\n\n\nc = x.to("cuda"); d = x.to("cuda")\n'
    assert len(retarget_strings(before).splitlines()) == len(before.splitlines())
    assert "cuda" not in retarget_strings(before)
