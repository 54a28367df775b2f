# AOTInductor cannot compile this program. Reduced from 88 operators to 1.
#
# InductorError: AssertionError: expected arg to be int, float, or bool, got <class
# 'complex'>
#
# Run:     python repro.py
# Expect:  the error above;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: compile-error | compile | InductorError | AssertionError: expected arg to be int, float, or bool, got <class 'complex'>
# Cause:   Wrapper code generation of aten.full.default (from aten.sgn.default
#          (make.py:22, needle)) fails: AssertionError: expected arg to be int, float,
#          or bool, got <class 'complex'>.
#          The error is raised in
#          torch/_inductor/codegen/cpp_wrapper_cpu.py:fill_args.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx sgn.pt2 --out sgn --jobs 1

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        sgn = torch.ops.aten.sgn.default(x)  # make.py:22, needle
        return (sgn,)


args = (torch.ones((1,), dtype=torch.complex64),)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
print("no longer fails")
