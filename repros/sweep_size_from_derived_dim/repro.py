# Under AOTInductor, this program gives a wrong result. Reduced from 9 operators to 1.
#
# output 0: shape torch.Size([4]), eager gives torch.Size([7])
#
# Warning (input program): with AOTI_RUNTIME_CHECK_INPUTS=1 the program refuses its
#          inputs (expected size 25==22, stride 8==8 at dim=0: Error in op: input);
#          the inputs may be at fault
#
# Run:     python repro.py
# Expect:  the script passes at the sizes of `passing`; at the sizes of `failing`:
#          an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   A value in kernel cpp_fused_abs_0 computes a wrong result: its inputs agree
#          with eager, but the result has shape (4,) instead of (7,).
# Seen on: torch 2.13.0+cpu, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx sweep_size_from_derived_dim.pt2 --inputs failing-1.pt --until mismatch --out out_sweep2

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        abs_1 = torch.ops.aten.abs.default(x)
        return (abs_1,)


passing = (torch.ones((16,)),)
failing = (torch.ones((7,)),)
M = torch.export.Dim('M')

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, passing, dynamic_shapes=({0: 3 * M + 1},))
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
for inputs in (passing, failing):
    with torch.no_grad():
        expected = model(*inputs)
        actual = compiled(*inputs)
    torch.testing.assert_close(actual, expected, equal_nan=True)
    print("passes at", *(tuple(value.shape) for value in inputs))
print("no longer fails")
