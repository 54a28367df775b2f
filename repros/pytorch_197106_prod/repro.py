# AOTInductor cannot compile this program. Reduced from 51 operators to 1.
#
# InductorError: AssertionError: expected reduction_type in ("min", "max", "any",
# "sum")
#
# Run:     python repro.py
# Expect:  the error above;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: compile-error | compile | InductorError | AssertionError: expected reduction_type in ("min", "max", "any", "sum")
# Cause:   C++ code generation of aten.prod.default (pytorch_197106b.py:7, model)
#          fails: AssertionError: expected reduction_type in ("min", "max", "any",
#          "sum").
#          The error is raised in
#          torch/_inductor/codegen/cpp.py:reduction_acc_type_vec.
#          The failure disappears when lowering 0 (aten.prod.default) falls back to
#          the eager kernel: the failure needs Inductor's code for this operator.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_197106b.pt2 --known repros --known runs --out pytorch_197106b

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        prod = torch.ops.aten.prod.default(x, dtype=torch.bool)  # pytorch_197106b.py:7, model
        return (prod,)


args = (torch.ones((2,)),)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
print("no longer fails")
