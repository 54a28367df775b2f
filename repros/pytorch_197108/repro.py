# Under AOTInductor, this program gives a wrong result. Reduced from 20 operators to 1.
#
# output 0: 1 of 1 elements differ, the first at []: 0.0, eager gives nan
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   aten.var_mean.default (operators.py:74) in kernel cpp_fused_var_mean_0
#          computes a wrong result: its inputs agree with eager, but 1 of 1 values of
#          its result do not (eager's result is confirmed in float64).
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx var_mean-unbiased.pt2 --out var_mean-unbiased --jobs 1

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        var_mean = torch.ops.aten.var_mean.default(x)  # operators.py:74
        var_mean_1 = var_mean[1]
        return (var_mean_1,)


args = (torch.zeros((0, 5)),)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
torch.testing.assert_close(actual, expected, equal_nan=True)
print("no longer fails")
