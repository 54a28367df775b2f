# Under AOTInductor, this program gives a wrong result. Reduced from 53 operators to 1.
#
# output 0: dtype torch.bool, eager gives torch.uint8
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   aten.any.default (pytorch_198081.py:7, model) in kernel cpp_fused_any_0
#          computes a wrong result: its inputs agree with eager, but the result has
#          dtype torch.bool instead of torch.uint8.
#          The failure disappears when lowering 0 (aten.any.default) falls back to the
#          eager kernel: the failure needs Inductor's code for this operator.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_198081.pt2 --known repros --known runs --out pytorch_198081

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        any_1 = torch.ops.aten.any.default(x)  # pytorch_198081.py:7, model
        return (any_1,)


args = (torch.zeros((1,), dtype=torch.uint8),)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
torch.testing.assert_close(actual, expected, equal_nan=True)
print("no longer fails")
