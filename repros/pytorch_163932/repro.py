# Under AOTInductor, this program gives NaN or inf. Reduced from 62 operators to 5.
#
# output 0: 25 of 25 elements differ, the first non-finite one at [0]: nan, eager
# gives 0.0
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: nan | compare
# Cause:   aten.sin.default (pytorch_163932.py:13, model), aten.t.default
#          (pytorch_163932.py:13, model), aten.select.int (pytorch_163932.py:13,
#          model) and aten.softmax.int (pytorch_163932.py:14, model), fused in kernel
#          cpp_fused__softmax_abs_all_amax_eq_ge_mul_n..._0, give a wrong result: its
#          inputs may differ from eager's, but from these inputs eager computes other
#          values: 1 of 25 values differ, all NaN (eager's result is confirmed in
#          float64).
#          The program passes when it also returns inner values.
#          The failure disappears when lowering 0 (aten.sin.default) falls back to the
#          eager kernel: the failure needs Inductor's code for this operator.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_163932.pt2 --known issues --known runs --out pytorch_163932

import torch

torch.manual_seed(0)


class Repro(torch.nn.Module):
    def forward(self, x, y):
        sin = torch.ops.aten.sin.default(x)  # pytorch_163932.py:13, model
        t = torch.ops.aten.t.default(sin)  # pytorch_163932.py:13, model
        select = torch.ops.aten.select.int(t, 0, 0)  # pytorch_163932.py:13, model
        mul = torch.ops.aten.mul.Tensor(select, y)  # pytorch_163932.py:13, model
        softmax = torch.ops.aten.softmax.int(mul, 0)  # pytorch_163932.py:14, model
        return (softmax,)


args = (
    torch.randn((25, 2)),
    torch.full((1,), 100000000000000.0, dtype=torch.float32),
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
