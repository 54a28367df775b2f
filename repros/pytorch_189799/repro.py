# Under AOTInductor, this program gives a wrong result. Reduced from 53 operators to 3.
#
# output 0: 1 of 2 elements differ, the first at [1]: -inf, eager gives inf
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   aten.add.Tensor (pytorch_189799.py:10, model) is computed differently in
#          the graph that Inductor lowers: 1 of 2 values differ (in the sign of zero);
#          no kernel is at fault.
#          The first wrong value is -0.0 at [1], where eager gives 0.0.
#          The failure disappears when joint pass 1 (constant_fold_uniform_value) is
#          skipped: the failure needs the change that this pass makes to the graph.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_189799.pt2 --out 189799 --jobs 1

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        zeros_like = torch.ops.aten.zeros_like.default(x)  # pytorch_189799.py:10, model
        add = torch.ops.aten.add.Tensor(x, zeros_like)  # pytorch_189799.py:10, model
        reciprocal = torch.ops.aten.reciprocal.default(add)  # pytorch_189799.py:10, model
        return (reciprocal,)


args = (torch.tensor([1.0, -0.0], dtype=torch.float32),)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
torch.testing.assert_close(actual, expected, equal_nan=True)
print("no longer fails")
