# AOTInductor cannot compile this program. Reduced from 57 operators to 3.
#
# InductorError: AssertionError: sympy expression is NaN
#
# Run:     python repro.py
# Expect:  the error above;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: compile-error | compile | InductorError | AssertionError: sympy expression is NaN
# Cause:   Scheduling of one of aten.log2.default (pytorch_190417.py:9, model) and
#          aten.layer_norm.default (pytorch_190417.py:10, model) fails:
#          AssertionError: sympy expression is NaN.
#          The error is raised in torch/_inductor/bounds.py:sub.
#          The failure disappears when joint pass 1 (constant_fold_uniform_value) is
#          skipped: the failure needs the change that this pass makes to the graph.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_190417.pt2 --known issues --known runs --out pytorch_190417

import torch


class Repro(torch.nn.Module):
    def forward(self):
        zeros = torch.ops.aten.zeros.default([2, 1])  # pytorch_190417.py:9, model
        log2 = torch.ops.aten.log2.default(zeros)  # pytorch_190417.py:9, model
        layer_norm = torch.ops.aten.layer_norm.default(log2, [1])  # pytorch_190417.py:10, model
        return (layer_norm,)


args = ()

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
print("no longer fails")
