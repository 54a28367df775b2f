# Under AOTInductor, this program gives NaN or inf. Reduced from 62 operators to 1.
#
# output 0: 1 of 1 elements differ, the first non-finite one at []: nan, eager gives
# 1.6279050543072006e+30
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: nan | compare
# Cause:   aten.std.dim (pytorch_197089.py:7, model) is computed differently in the
#          graph that Inductor lowers: 1 of 1 values differ; no kernel is at fault.
#          Run in eager, the graph that Inductor lowers gives inf at []; the program
#          gives 1.6279050543072006e+30.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_197089.pt2 --known repros --known runs --out pytorch_197089

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        std = torch.ops.aten.std.dim(x, [])  # pytorch_197089.py:7, model
        return (std,)


args = (
    torch.tensor([2.3022053419777406e+30, 1.0], dtype=torch.float32),
)

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
