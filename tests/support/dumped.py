"""Scripts as PyTorch 2.13 writes them of a failure, and the log that holds one."""

from __future__ import annotations

import textwrap

LAUNCHER = """\

# from torch.nn import *
# class Repro(torch.nn.Module):
#     def forward(self, x):
#         relu = torch.ops.aten.relu.default(x);  x = None

import os
os.environ['TORCHINDUCTOR_FREEZING'] = '1'
os.environ['TORCHINDUCTOR_CACHE_DIR'] = '/home/who/cache'
os.environ['TORCH_LOGS'] = 'output_code'
os.environ.pop('TORCHDYNAMO_REPRO_AFTER', None)

import torch
import torch._inductor.inductor_prims

import torch._dynamo.config
import torch._inductor.config
import torch._functorch.config
import torch.fx.experimental._config
import _warnings
torch._dynamo.config.specialize_int = False
torch._dynamo.config.reorderable_logging_functions = { _warnings.warn }
torch._inductor.config.comprehensive_padding = False
torch._inductor.config.aot_inductor.dump_aoti_minifier = True
torch._inductor.config.trace.enabled = True
torch._inductor.config.cpp.threads = -1
torch._inductor.config.post_grad_custom_post_pass = _warnings.warn
torch.fx.experimental._config.use_duck_shape = False

isolate_fails_code_str = None

# torch version: 2.12.0+cpu
# torch cuda version: None

exported_program = torch.export.load('/home/who/minifier/checkpoints/e.pt2')
# print(exported_program.graph)
config_patches={'max_autotune': True, 'aot_inductor.package': True}
if __name__ == '__main__':
    from torch._dynamo.repro.aoti import run_repro
    with torch.no_grad():
        run_repro(exported_program, config_patches=config_patches, accuracy='accuracy',
            command='minify', save_dir='/home/who/minifier/checkpoints', check_str='no')
"""

RUNNABLE = """\
s7 = 5

import os
os.environ['TORCH_TRACE'] = '/home/who/trace'

import torch
from torch import tensor, device
import torch._inductor.config
torch._inductor.config.freezing = True

# torch version: 2.12.0+cpu

from torch.nn import *
class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()

    def forward(self, arg0_1, arg1_1):
        add = torch.ops.aten.add.Tensor(arg1_1, arg0_1);  arg1_1 = arg0_1 = None
        return (add,)

def load_args(reader):
    reader.symint(5, expr='s7')  # arg0_1
    buf0 = reader.storage(None, 8*s7)
    reader.tensor(buf0, (s7, 2), is_leaf=True)  # arg1_1
load_args._version = 0
mod = Repro()
if __name__ == '__main__':
    from torch._dynamo.repro.after_aot import run_repro
    with torch.no_grad():
        run_repro(mod, load_args, accuracy=False, command='run', save_dir=None)
"""

_PREFIX = "V1122 23:58:54.694000 5913 torch/_inductor/compile_fx.py:1315] "


def logged(*graphs: str) -> str:
    """Write graphs as ``TORCH_TRACE`` does, other artifacts between them."""
    lines = [f'{_PREFIX}{{"str": ["/a.py", 0]}}']
    for graph in graphs:
        for name, payload in (("other", "{}"), ("fx_graph_runnable", graph)):
            about = f'{{"artifact": {{"name": "{name}"}}, "has_payload": "7d53"}}'
            lines += [f"{_PREFIX}{about}", textwrap.indent(payload, "\t", bool)]
    return "\n".join(lines)
