"""A preload that compiles C++ as it is imported, and what a worker has seen of it."""

from __future__ import annotations

import ast
from pathlib import Path

from shrinkfx.program.uninstalled_files import Loading, UninstalledFiles

OPS = '''\
import torch
from torch.utils import cpp_extension
from torch.utils.cpp_extension import load_inline

HALF = "at::Tensor mix(at::Tensor x);"
SOURCE = f"""{HALF} TORCH_LIBRARY(my_ops, m) {{ m.def("mix(Tensor x) -> Tensor"); }}"""
FLAGS = ["-O1"]

%s

@torch.library.register_fake("my_ops::mix")
def _(x): return torch.empty_like(x)
'''

PLAIN = 'load_inline("my_ops", SOURCE, is_python_module=False)'


def beside(folder: Path, call: str) -> tuple[Path, UninstalledFiles]:
    """Write a module that makes a library, and say what was seen of it."""
    file, built = folder / "ops.py", folder / "cache" / "my_ops"
    built.mkdir(parents=True)
    file.write_text(OPS % call)
    (built / "my_ops.so").touch()
    (built / "main.cpp").touch()
    (found,) = (
        node
        for node in ast.walk(ast.parse(OPS % call))
        if isinstance(node, ast.Call) and "load" in ast.unparse(node.func)
    )
    end, last = found.end_lineno or 0, found.end_col_offset or 0
    span = found.lineno, found.col_offset, end, last
    library = str(built / "my_ops.so")
    loading = Loading(str(file), span, library)
    callers = [(str(file), found.lineno)]
    made = str(built / "main.cpp")
    return file, UninstalledFiles({}, (library,), (made,), (loading,), callers)
