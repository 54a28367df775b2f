# Under AOTInductor, this program gives a wrong result. Reduced from 50 operators to 2.
#
# output 0: 1 of 1 elements differ, the first at [0, 0]: 0.0, eager gives 1.0
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   aten.addmm.default (pytorch_196596.py:7, model) is decomposed wrongly by
#          torch/_inductor/decomposition.py:addmm: 1 of 1 values differ, all NaN; no
#          kernel is at fault.
#          The first wrong value is nan at [0, 0], where eager gives 1.0.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_196596.pt2 --out 196596 --jobs 1

import torch


class Repro(torch.nn.Module):
    def forward(self, x, y):
        addmm = torch.ops.aten.addmm.default(x, y, y, beta=0)  # pytorch_196596.py:7, model
        nan_to_num = torch.ops.aten.nan_to_num.default(addmm)  # issues.py:45
        return (nan_to_num,)


args = (
    torch.full((1,), float("nan"), dtype=torch.float32),
    torch.ones((1, 1)),
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
