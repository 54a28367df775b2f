# Under AOTInductor, this program gives a wrong result. Reduced from 52 operators to 2.
#
# output 0: 1 of 1 elements differ, the first at [0]: 0.0, eager gives 1.0
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   aten.slice_scatter.default (pytorch_198094.py:7, model) as result 0 of the
#          program computes a wrong result: its inputs agree with eager, but 1 of 1
#          values of its result do not (largest error 1).
#          The failure disappears when post-grad pass 12 (reinplace_inplaceable_ops)
#          is skipped: the failure needs the change that this pass makes to the graph.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_198094.pt2 --known repros --known runs --out pytorch_198094

import copy
import torch


class Repro(torch.nn.Module):
    def forward(self, x, y):
        slice_scatter = torch.ops.aten.slice_scatter.default(x, y)  # pytorch_198094.py:7, model
        zero = torch.ops.aten.zero_.default(x)  # pytorch_198094.py:8, model
        return (slice_scatter,)


args = (torch.ones((1,)), torch.ones((1,)))

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    expected = model(*copy.deepcopy(args))
    actual = compiled(*copy.deepcopy(args))
torch.testing.assert_close(actual, expected, equal_nan=True)
print("no longer fails")
