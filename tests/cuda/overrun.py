"""A Triton kernel that writes one float too far: ``overrun.py ELEMENTS PLACE``."""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def write(at, place):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    tl.store(at + place, 7.0)


elements, place = map(int, sys.argv[1:]) if sys.argv[2:] else (25, 26)
tensor = torch.zeros(elements, device="cuda")
write[(1,)](tensor, place)
torch.cuda.synchronize()
del tensor
print("nothing noticed")
