# Under AOTInductor, this program gives a wrong result. Reduced from 15 operators to 1.
#
# output 0: 1 of 3 elements differ, the first at [0, 0, 0, 1]: 0, eager gives 1
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   aten.upsample_bilinear2d.vec (operators.py:71) is decomposed wrongly by
#          torch/_decomp/decompositions.py:_upsample_linear_vec: 1 of 3 values differ
#          (largest error 1); no kernel is at fault.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx nn_functional_upsample_bilinear.pt2 --max-minutes 8 --known known_repros --known runs --out nn_functional_upsample_bilinear

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        upsample_bilinear2d = torch.ops.aten.upsample_bilinear2d.vec(x, [1, 3], True, None)  # operators.py:71
        return (upsample_bilinear2d,)


args = (torch.arange(2, dtype=torch.uint8).reshape((1, 1, 1, 2)),)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
torch.testing.assert_close(actual, expected, equal_nan=True)
print("no longer fails")
