# Under AOTInductor, this program gives NaN or inf. Reduced from 51 operators to 2.
#
# output 0: 1 of 1 elements differ, the first non-finite one at []: inf, eager gives
# 37269600.0
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: nan | compare
# Cause:   aten.linalg_cond.default (pytorch_150114.py:7, model) in kernel
#          cpp_fused_div_slice_1 (launch 3 of the 3 in the program) amplifies
#          rounding: its result is right for its inputs, and these agree with eager
#          within the tolerances, but 1 of 1 values differ from eager's. This may be
#          no bug.
#          The first wrong value is inf at [0], where eager gives 37269600.0.
#          The failure disappears when lowering 0 (aten.atan.default) falls back to
#          the eager kernel: the failure needs Inductor's code for this operator.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_150114.pt2 --out 150114 --jobs 1

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        arctan = torch.ops.aten.arctan.default(x)  # pytorch_150114.py:7, model
        linalg_cond = torch.ops.aten.linalg_cond.default(arctan)  # pytorch_150114.py:7, model
        return (linalg_cond,)


args = (torch.ones((2, 2)),)

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
