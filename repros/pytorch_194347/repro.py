# Under AOTInductor, this program gives a wrong result. Reduced from 51 operators to 2.
#
# output 0: 1 of 1 elements differ, the first at [0]: inf, eager gives -inf
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   aten.minimum.default (pytorch_194347.py:7, model) in kernel
#          cpp_fused_minimum_reciprocal_0 computes a wrong result: its inputs agree
#          with eager, but 1 of 1 values of its result do not (in the sign of zero).
#          This was measured in a changed kernel, which also returns its inner
#          values.
#          The first wrong value is 0.0 at [0], where eager gives -0.0.
#          The failure disappears when lowering 0 (aten.minimum.default) falls back to
#          the eager kernel: the failure needs Inductor's code for this operator.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_194347.pt2 --out 194347 --jobs 1

import torch


class Repro(torch.nn.Module):
    def forward(self, x, y):
        minimum = torch.ops.aten.minimum.default(x, y)  # pytorch_194347.py:7, model
        reciprocal = torch.ops.aten.reciprocal.default(minimum)  # pytorch_194347.py:7, model
        return (reciprocal,)


args = (
    torch.full((1,), -0.0, dtype=torch.float32),
    torch.zeros((1,)),
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
