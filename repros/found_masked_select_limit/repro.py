# Under AOTInductor, this program fails an assertion. Reduced from 108 operators to 1.
#
# Expected u0 <= 3 but received 6
#
# Warning (input program): eager also fails on the input program: RuntimeError:
#          Runtime assertion failed for expression u2 <= 10 on node 'le_38'
#
# Run:     python repro.py
# Expect:  the assertion above, as an exception or an abort;
#          eager fails on the input program too; inputs or operators may be at fault.
# Failure: assert | run | Expected u# <= # but received #
# Cause:   The exported program checks that u0 <= 3, but the value is 6. torch.export
#          takes such a limit from the fake kernel of an operator or from
#          torch._check: it or the inputs may be wrong.
#          aten.masked_select.default (operators.py:74) fails alone: the reduced
#          program has no other operator; why is not known.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx masked_select.pt2 --out masked_select2 --jobs 1
# Eager fails on the input program too; results are not compared.

import torch


class Repro(torch.nn.Module):
    def forward(self, x, y):
        masked_select = torch.ops.aten.masked_select.default(x, y)  # operators.py:74
        return (masked_select,)


args = (torch.ones((3,)), torch.ones((2, 1), dtype=torch.bool))

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
print("no longer fails")
