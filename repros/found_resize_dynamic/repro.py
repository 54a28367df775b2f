# AOTInductor cannot compile this program. Reduced from 34 operators to 1.
#
# RuntimeError: Cannot call storage_offset() on tensor with symbolic sizes/strides
#
# Run:     python repro.py
# Expect:  the error above;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: compile-error | compile | RuntimeError | Cannot call storage_offset() on tensor with symbolic sizes/strides
# Cause:   Tracing (AOTAutograd) of aten.resize_.default (operators.py:71) fails:
#          Cannot call storage_offset() on tensor with symbolic sizes/strides.
#          The error is raised in
#          torch/_subclasses/functional_tensor.py:__torch_dispatch__.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx resize_.pt2 --max-minutes 8 --known known_repros --known runs --out resize_

import copy
import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        resize = torch.ops.aten.resize_.default(x, [25, 5])  # operators.py:71
        return (resize,)


args = (torch.ones((5, 5, 5)),)
M = torch.export.Dim('M', min=2)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args, dynamic_shapes=({0: torch.export.Dim.AUTO(min=2), 1: torch.export.Dim.AUTO(min=2), 2: M},))
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    expected = model(*copy.deepcopy(args))
    actual = compiled(*copy.deepcopy(args))
print("no longer fails")
