# torch.compile cannot compile this program. Reduced from 11 operators to 1.
#
# InductorError: LoweringException: AssertionError: expected: len(padding) == 2
# (aten.avg_pool2d_backward.default)
#
# Run:     python repro.py
# Expect:  the error above;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: compile-error | compile | InductorError | LoweringException: AssertionError: expected: len(padding) == # | aten.avg_pool2d_backward.default
# Cause:   Lowering of aten.avg_pool2d_backward.default (training.py:42) fails:
#          AssertionError: expected: len(padding) == 2.
#          The error is raised in torch/_inductor/lowering.py:avg_pool2d_backward.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx --out tav --jobs 1 --capture -- python training.py ...

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        avg_pool2d_backward = torch.ops.aten.avg_pool2d_backward.default(x, x, [1, 1], [], [0], False, True, 1)  # training.py:42
        return (avg_pool2d_backward,)


args = (torch.ones((1, 1, 1)),)

model = Repro().eval()
with torch.no_grad():
    expected = model(*args)
    compiled = torch.compile(model, fullgraph=True)
    actual = compiled(*args)
print("no longer fails")
