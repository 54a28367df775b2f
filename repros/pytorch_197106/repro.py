# AOTInductor cannot compile this program. Reduced from 51 operators to 1.
#
# no matching function for call to
# ‘sum_masked_reduce(at::vec::CPU_CAPABILITY::VecMask<float, 1>&,
# at::vec::CPU_CAPABILITY::VecMask<c10::Half, 1>&, int64_t)’
#
# Run:     python repro.py
# Expect:  the error above;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: compile-error | compile | C++: no matching function for call to 'sum_masked_reduce'
# Cause:   C++ compilation of kernel cpp_fused_sum_0, which computes aten.sum.default
#          (pytorch_197106.py:7, model), fails: no matching function for call to
#          ‘sum_masked_reduce(at::vec::CPU_CAPABILITY::VecMask<float, 1>&,
#          at::vec::CPU_CAPABILITY::VecMask<c10::Half, 1>&, int64_t)’.
#          The error is at line 20 of
#          explain/sources/cpkeh5dven5lx5jat6urt73rpajklqcfzgag5nagbnrz6yvbjq52.kernel.cpp:
#          `tmp_acc0_vec = sum_masked_reduce(tmp_acc0_vec, tmp1,
#          static_cast<int64_t>(2L));`.
#          The failure disappears when lowering 0 (aten.sum.default) falls back to the
#          eager kernel: the failure needs Inductor's code for this operator.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx pytorch_197106.pt2 --known repros --known runs --out pytorch_197106

import torch


class Repro(torch.nn.Module):
    def forward(self, x):
        sum_1 = torch.ops.aten.sum.default(x, dtype=torch.bool)  # pytorch_197106.py:7, model
        return (sum_1,)


args = (torch.ones((2,), dtype=torch.float16),)

model = Repro().eval()
with torch.no_grad():
    program = torch.export.export(model, args)
    expected = model(*args)
    package = torch._inductor.aoti_compile_and_package(program)
    compiled = torch._inductor.aoti_load_package(package)
    actual = compiled(*args)
print("no longer fails")
