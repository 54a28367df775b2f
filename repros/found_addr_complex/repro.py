# AOTInductor cannot compile this program. Reduced from 36 operators to 1.
#
# InductorError: RuntimeError: self.stride(-1) must be 1 to view ComplexFloat as Float
# (different element sizes), but got 0
#
# Run:     python repro.py
# Expect:  the error above;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: compile-error | compile | InductorError | RuntimeError: self.stride(#) must be # to view dtype as dtype (different element sizes), but got #
# Cause:   Tracing (AOTAutograd) of aten.view.dtype (from aten.addr.default
#          (operators.py:74)) fails: RuntimeError: self.stride(-1) must be 1 to view
#          ComplexFloat as Float (different element sizes), but got 0.
#          The error is raised in torch/_subclasses/fake_tensor.py:_dispatch_impl.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx addr.pt2 --out addr --jobs 1

import torch


class Repro(torch.nn.Module):
    def forward(self, x, y, z):
        addr = torch.ops.aten.addr.default(x, y, z)  # operators.py:74
        return (addr,)


args = (
    torch.ones(()),
    torch.ones((1,)),
    torch.ones((2,), dtype=torch.complex64),
)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
print("no longer fails")
