# Under AOTInductor, this program gives NaN or inf. Reduced from 51 operators to 1.
#
# output 0: 4 of 4 elements differ, the first non-finite one at [0]: inf, eager gives
# 709.889355822726
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: nan | compare
# Cause:   aten.acosh.default (pytorch_198134.py:9, model) in kernel cpp_fused_acosh_0
#          computes a wrong result: its inputs agree with eager, but 4 of 4 values of
#          its result do not (eager's result is confirmed in float64).
#          The failure disappears when lowering 0 (aten.acosh.default) falls back to
#          the eager kernel: the failure needs Inductor's code for this operator.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_198134.pt2 --known issues --known runs --out pytorch_198134

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        acosh = torch.ops.aten.acosh.default(x)  # pytorch_198134.py:9, model
        return (acosh,)


args = (torch.full((4,), 1e+308, dtype=torch.float64),)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
pairs = zip(actual, expected, strict=True)
born = [bool((~a.isfinite() & e.isfinite()).any()) for a, e in pairs]
assert not any(born), "not finite where eager is finite"
print("no longer fails")
