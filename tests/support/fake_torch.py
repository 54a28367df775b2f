"""A package named torch for scripts that are captured: the entry points, no more.

A "program" is a word that says what is to happen to it: ``fine``, ``compile:raise``,
``call:segv``, ``load:sleep``; it is pickled where torch would save an archive.
"""

from __future__ import annotations

from pathlib import Path

_FILES = {
    "torch/__init__.py": """
import pickle
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("torch")
except PackageNotFoundError:
    __version__ = "0"

class Tensor:
    def __init__(self, value):
        self.value = value

    def detach(self):
        return self.value

class _C:
    _dispatch_dump = staticmethod(lambda name: "debug: registered at ops.py:1\\n")

def save(value, path):
    with open(path, "wb") as file:
        pickle.dump(value, file)

_threads = 2

def get_num_threads():
    return _threads

def set_num_threads(number):
    global _threads
    _threads = number

from torch import cuda, export, library
""",
    "torch/cuda.py": "is_initialized = lambda: False\n",
    "torch/library.py": """
class Library:
    def __init__(self, ns, kind, dispatch_key=""):
        self.ns = ns

def custom_op(name):
    Library(name.partition("::")[0], "FRAGMENT")
    return lambda function: function
""",
    "torch/export/__init__.py": """
import pickle

class _Node:
    op, target, stack_trace, args = "call_function", None, "", ()

    def __init__(self, name):
        self.name = name
        function, _, called = name.rpartition("/")
        if "::" in called:
            self.target = type("T", (), {"_schema": type("S", (), {"name": called})})
        if function:  # as in auto_functionalized/mine::scale_
            self.target, self.args = function, (self.target,)

class ExportedProgram:
    def __init__(self, words):
        self.words = words
        graph = type("Graph", (), {"nodes": [_Node(word) for word in words]})
        self.graph_module = self
        self.graph = graph
        self.call_spec = type("C", (), {"in_spec": None, "out_spec": None})

    def modules(self):
        return [self]

    def state_dict(self):
        return {}

def export(module, args, kwargs=None, *, dynamic_shapes=None):
    if module == "raise":
        raise ValueError("not exportable")
    return ExportedProgram(module.split())

def save(program, path):
    if "unsavable" in program.words:
        raise RuntimeError("no such thing can be serialized")
    with open(path, "wb") as file:
        pickle.dump(program.words, file)
""",
    "torch/export/pt2_archive/__init__.py": "",
    "torch/export/pt2_archive/_package.py": """
import os, signal, sys, time

def do(words, step):
    for word in words:
        when, _, what = word.partition(":")
        if when == step and what == "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(60)
        if when == step and what == "sleep":
            time.sleep(600)
        if when == step and what == "spin":
            while True: pass
        if when == step and what == "raise":
            raise RuntimeError(f"{step} failed")

class AOTICompiledModel:
    def __init__(self, words):
        self.words = words

    def __call__(self, *args, **kwargs):
        do(self.words, "call")
        return args
""",
    "torch/_inductor/config.py": """
import sys

class _Config(type(sys)):
    def get_config_copy(self):
        return {k: v for k, v in vars(self).items() if not k.startswith("_")}

    def _is_default(self, name):
        return vars(self)[name] is self._defaults.get(name)

max_autotune, freezing = False, False
custom_pass = None
_defaults = {"max_autotune": False, "freezing": False, "custom_pass": None}
del sys.modules[__name__].__dict__["sys"]
import sys as _sys
_sys.modules[__name__].__class__ = _Config
""",
    "torch/_inductor/__init__.py": """
import json
from torch._inductor import config

def aoti_compile_and_package(program, *, package_path=None, inductor_configs=None):
    from torch.export.pt2_archive._package import do
    do(program.words, "compile")
    with open(package_path, "w") as file:
        json.dump(program.words, file)
    return package_path

def aoti_load_package(path):
    from torch._inductor.package.package import load_package
    return load_package(path)
""",
    "torch/_inductor/compile_fx.py": """
from torch._inductor.output_code import CompiledFxGraph
from torch.export import ExportedProgram
from torch.export.pt2_archive._package import do

def _compile_fx_inner(gm, example_inputs, is_backward=False):
    do(gm.words, "compile")
    return CompiledFxGraph(gm.words)

def compile_graph(words, **options):
    return _compile_fx_inner(ExportedProgram(words.split()), [], **options)
""",
    "torch/_inductor/output_code.py": """
from torch.export.pt2_archive._package import AOTICompiledModel

class CompiledFxGraph(AOTICompiledModel):
    def __call__(self, inputs):
        return super().__call__(*inputs)
""",
    "torch/_dynamo/repro/after_aot.py": """
def save_graph_repro(file, graph, inputs, compiler):
    if "unsavable" in graph.words:
        raise RuntimeError("no such graph can be written")
    file.write(" ".join(graph.words))
""",
    "torch/_inductor/package/__init__.py": "from .package import load_package\n",
    "torch/_inductor/package/package.py": """
import json
from torch.export.pt2_archive._package import AOTICompiledModel, do

def load_package(path):
    with open(path) as file:
        words = json.load(file)
    do(words, "load")
    return AOTICompiledModel(words)
""",
}


def install(folder: Path) -> None:
    """Write the package where a script in that folder imports it from."""
    for name, text in _FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip())
