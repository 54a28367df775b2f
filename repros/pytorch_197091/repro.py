# Under AOTInductor, this program gives a wrong result. Reduced from 56 operators to 1.
#
# output 0: dtype torch.float32, eager gives torch.float16
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   aten.ldexp.Tensor (pytorch_197091.py:7, model) in kernel cpp_fused_ldexp_0
#          computes a wrong result: its inputs agree with eager, but the result has
#          dtype torch.float32 instead of torch.float16.
#          The failure disappears when lowering 0 (aten.ldexp.Tensor) falls back to
#          the eager kernel: the failure needs Inductor's code for this operator.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_197091.pt2 --known repros --known runs --out pytorch_197091

import torch


class Repro(torch.nn.Module):
    def forward(self, x, y):
        ldexp = torch.ops.aten.ldexp.Tensor(x, y)  # pytorch_197091.py:7, model
        return (ldexp,)


args = (
    torch.ones((1,), dtype=torch.bool),
    torch.ones((1,), dtype=torch.float16),
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
