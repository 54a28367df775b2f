# Under AOTInductor, this program gives a wrong result. Reduced from 85 operators to 1.
#
# output 0: dtype torch.int64, eager gives torch.int8
#
# Warning: wrong values in the input program, but wrong dtype in the reduced program
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   aten.matmul.default (make.py:39) in kernel cpp_fused_bmm_expand_0 computes a
#          wrong result: its inputs agree with eager, but the result has dtype
#          torch.int64 instead of torch.int8.
# Seen on: torch 2.13.0+cpu, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx mismatch_low_precision.pt2 --until mismatch --out out_mismatch_low_precision

import torch


class Repro(torch.nn.Module):
    def forward(self, x, y):
        matmul = torch.ops.aten.matmul.default(x, y)  # make.py:39
        return (matmul,)


args = (
    torch.zeros((1, 2), dtype=torch.int8),
    torch.zeros((1, 2, 2), dtype=torch.int8),
)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
torch.testing.assert_close(actual, expected, equal_nan=True)
print("no longer fails")
