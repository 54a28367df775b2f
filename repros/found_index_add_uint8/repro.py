# AOTInductor cannot compile this program. Reduced from 148 operators to 1.
#
# Triton: atomic_add does not support uint8
#
# Run:     python repro.py
# Expect:  the error above;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: compile-error | compile | Triton: atomic_add does not support uint8
# Cause:   Triton's compilation of kernel triton_poi_fused_index_add_1, which computes
#          aten.index_add.default (operators.py:71), fails: atomic_add does not
#          support uint8.
#          The error is at line 15 of the kernel source: `tl.atomic_add(out_ptr0 +
#          (tl.full([XBLOCK], 0, tl.int32).broadcast_to(XBLOCK)), tmp8, None,
#          sem='relaxed')`.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, CUDA 13.2, triton 3.9.0, g++ 12.2.0, on
#          Linux x86_64
# Made by: shrinkfx g0-047.pt2 --device cuda --backend interpreter --max-minutes 8 --out g0-047
# Verified by compiling for sm_90 with no GPU; no kernel ran.

import os

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = '1'
os.environ["CUDA_LAUNCH_BLOCKING"] = '1'

import torch


class Repro(torch.nn.Module):
    def forward(self, x, y):
        index_add = torch.ops.aten.index_add.default(x, 0, y, x)  # operators.py:71
        return (index_add,)


args = (
    torch.ones((), dtype=torch.uint8).to("cuda"),
    torch.zeros((1,), dtype=torch.int64).to("cuda"),
)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    expected = model(*args)
    actual = compiled(*args)
print("no longer fails")
