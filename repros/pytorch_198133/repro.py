# Under AOTInductor, this program gives a wrong result. Reduced from 56 operators to 1.
#
# output 0: 1 of 1 elements differ, the first at [0]: 5.86394853224712, eager gives
# 5.8635847487551676
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   aten.erfinv.default (pytorch_198133.py:9, model) in kernel
#          cpp_fused_erfinv_0 computes a wrong result: its inputs agree with eager,
#          but 1 of 1 values of its result do not (largest error 0.000364, 4.1e+11
#          ulps; eager's result is confirmed in float64).
#          The failure disappears when lowering 0 (aten.erfinv.default) falls back to
#          the eager kernel: the failure needs Inductor's code for this operator.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_198133.pt2 --known issues --known runs --out pytorch_198133

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        erfinv = torch.ops.aten.erfinv.default(x)  # pytorch_198133.py:9, model
        return (erfinv,)


args = (torch.full((1,), 0.9999999999999999, dtype=torch.float64),)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
torch.testing.assert_close(actual, expected, equal_nan=True)
print("no longer fails")
