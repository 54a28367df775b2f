# Under AOTInductor, this program gives a wrong result. Reduced from 50 operators to 1.
#
# output 0: 1 of 2 elements differ, the first at [0, 0, 1, 0]: 0.0, eager gives 1.0
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   aten.upsample_nearest2d.vec (pytorch_198201.py:7, model) is decomposed
#          wrongly by torch/_decomp/decompositions.py:_upsample_nearest_vec: 1 of 2
#          values differ (largest error 1); no kernel is at fault.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_198201.pt2 --out o --jobs 1

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        upsample_nearest2d = torch.ops.aten.upsample_nearest2d.vec(x, None, [1.3, 1])  # pytorch_198201.py:7, model
        return (upsample_nearest2d,)


args = (torch.arange(2, dtype=torch.float32).reshape((1, 1, 2, 1)),)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
torch.testing.assert_close(actual, expected, equal_nan=True)
print("no longer fails")
