# torch.compile cannot compile this program. Reduced from 21 operators to 4.
#
# InductorError: NotImplementedError: Unsupported for `epilogue_nodes` in
# CppFlexAttentionTemplate.
#
# Run:     python repro.py
# Expect:  the error above;
#          once the bug is fixed it prints "no longer fails" and exits with 0.
# Failure: compile-error | compile | InductorError | NotImplementedError: Unsupported for `epilogue_nodes` in CppFlexAttentionTemplate.
# Cause:   C++ code generation of flex_attention (attention.py:21) fails:
#          NotImplementedError: Unsupported for `epilogue_nodes` in
#          CppFlexAttentionTemplate.
#          The error is raised in
#          torch/_inductor/codegen/cpp_flex_attention_template.py:render.
# Seen on: torch 2.15.0+cu132, Python 3.11.7, g++ 12.2.0, on Linux x86_64
# Made by: shrinkfx --capture --out out -- python attention.py

import torch


class SdpaScore0(torch.nn.Module):
    def forward(self, x, y, z, x1, x2):
        add = torch.ops.aten.add.Tensor(x, x)  # attention.py:21
        return add


class SdpaMask0(torch.nn.Module):
    def forward(self, x, y, z, x1):
        ge = torch.ops.aten.ge.Tensor(z, x1)  # attention.py:6
        return ge


class Repro(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sdpa_score0 = SdpaScore0()
        self.sdpa_mask0 = SdpaMask0()

    def forward(self, x, y, z):
        flex_attention = torch.ops.higher_order.flex_attention(x, x, x, self.sdpa_score0, (1, 1, y, z, y, z, y, z, y, z, None, None, None, None, 1, 1, self.sdpa_mask0), 0.25, {'BACKEND': 'AUTO', 'PRESCALE_QK': False, 'ROWS_GUARANTEED_SAFE': False, 'BLOCKS_ARE_CONTIGUOUS': False, 'WRITE_DQ': True, 'OUTPUT_LOGSUMEXP': False, 'OUTPUT_MAX': False})  # attention.py:21
        flex_attention_0 = flex_attention[0]
        mul = torch.ops.aten.mul.Tensor(flex_attention_0, 2)
        return (mul,)


args = (
    torch.ones((1, 1, 1, 1)),
    torch.zeros((1, 1), dtype=torch.int64),
    torch.zeros((1, 1, 1, 1), dtype=torch.int64),
)

model = Repro().eval()
with torch.no_grad():
    expected = model(*args)
    compiled = torch.compile(model, fullgraph=True)
    actual = compiled(*args)
print("no longer fails")
