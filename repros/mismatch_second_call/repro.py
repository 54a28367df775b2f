# Under AOTInductor, this program gives a wrong result. Reduced from 51 operators to 1.
#
# output 0: 1 of 1 elements differ, the first at [0]: 1.0, eager gives 2.0
#
# Run:     python repro.py
# Expect:  an AssertionError: the compiled result differs from eager, in call 2;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: mismatch | compare
# Cause:   All calls have the same inputs, and call 2 is the first that fails, so the
#          failure depends on what a call writes to a buffer: the result of
#          aten.add.Tensor (make.py:27, needle).
# Seen on: torch 2.13.0+cpu, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx mismatch_second_call.pt2 --until mismatch --out out_mismatch_second_call

import copy
import torch


class Repro(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("buffer", torch.zeros((1,)))

    def forward(self):
        add = torch.ops.aten.add.Tensor(self.buffer, 1)  # make.py:27, needle
        self.buffer.copy_(add)
        return (add,)


args = ()

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    for call in range(2):
        expected = model(*copy.deepcopy(args))
        actual = compiled(*copy.deepcopy(args))
torch.testing.assert_close(actual, expected, equal_nan=True)
print("no longer fails")
