# Under AOTInductor, this program gives a wrong result. Reduced from 69 operators to 1.
#
# output 0: 1 of 1 elements differ, the first at []: 0, eager gives 2
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   aten.argmax.default (pytorch_191499.py:9, model) in kernel
#          cpp_fused_argmax_0 computes a wrong result: its inputs agree with eager,
#          but 1 of 1 values of its result do not (largest error 2; eager's result is
#          confirmed in float64).
#          The failure disappears when lowering 0 (aten.argmax.default) falls back to
#          the eager kernel: the failure needs Inductor's code for this operator.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_191499.pt2 --known issues --known runs --out pytorch_191499

import torch

torch.manual_seed(0)


class Repro(torch.nn.Module):
    def forward(self, x):
        argmax = torch.ops.aten.argmax.default(x)  # pytorch_191499.py:9, model
        return (argmax,)


args = (torch.randint(-127, 0, (16,), dtype=torch.int8),)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
torch.testing.assert_close(actual, expected, equal_nan=True)
print("no longer fails")
