"""What of a preloaded file is selected, before a test shows what is needed."""

import re
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from textwrap import dedent
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from shrinkfx.preloads.preload_bundle import Definitions, PreloadCut
from shrinkfx.preloads.slicing import Slicer
from shrinkfx.preloads.statements import read_source, statements_of

MIX = """
@torch.library.custom_op("mylib::mix", mutates_args=())
def mix(x):
    return x
"""


def cut(
    folder: Path,
    source: str,
    *without: str,
    callers: Sequence[int] = (),
    whole: bool = False,
) -> Definitions:
    """Slice a file, without roots that begin with one of some texts."""
    path = folder / "ops.py"
    path.write_text(dedent(source), encoding="utf-8")
    return slice_file(path, without, callers, whole=whole)


def slice_file(
    path: Path,
    without: Collection[str] = (),
    callers: Sequence[int] = (),
    *,
    whole: bool = False,
) -> Definitions:
    statements = statements_of(read_source(path), str(path))
    dropped = frozenset(
        (str(path), *each.place)
        for each in statements
        if each.code.startswith(tuple(without))
    )
    places = [(str(path), line) for line in callers]
    cut = PreloadCut(whole=whole, dropped=dropped)
    slicer = Slicer({"ops": path}, {}, (), places, cut, lambda _: statements)
    return slicer.slices()["ops"].definitions


def lines(taken: Definitions) -> list[str]:
    return [line for line in taken.text.splitlines() if line.strip()]


@pytest.mark.parametrize(
    "registration",
    [
        'torch.library.define("mylib::mix", "(Tensor x) -> Tensor")',
        'mix = torch.library.custom_op("mylib::mix", mutates_args=())(abs)',
        'if has_cuda():\n    torch.library.impl("mylib::mix", "CUDA", f)',
        "register_lowering(torch.ops.mylib.mix.default)(abs)",
        '@triton_op("mylib::mix", mutates_args={})\ndef _(x):\n    # why\n    return x',
        'NAME = "mylib::mix"\ntorch.library.define(NAME, "() -> ()")',
        'lib = Library("mylib", "DEF")\nlib.impl("mix", abs, "CPU")',
        'names = []\nnames += ["mylib::mix"]\nregister(names)',
        f"{MIX.strip()}\n@mix.register_fake\ndef _(x): return x",
        f"{MIX.strip()}\nif True:\n    @mix.register_fake\n    def _(x): return x",
        "import mylib._C",
        "from mylib import *",
        "from . import other",
        "try:\n    import old\nexcept ImportError:\n    old = None",
    ],
)
def test_slice_keeps_a_registration_with_what_it_reads(
    tmp_path: Path, registration: str
) -> None:
    source = f"import os\nunused = 1\n{registration}\nclass Net: x = mix\n"
    assert cut(tmp_path, source) == Definitions(registration + "\n")
    act = registration.partition("(")[0]
    if "\n" not in registration:
        assert cut(tmp_path, source, act).text == ""


@pytest.mark.parametrize(
    ("reader", "binding"),
    [
        ("return helper(x)", "def helper(x): return x"),
        ("return Helper(x)", "class Helper: pass"),
        ("return np.abs(x)", "import numpy as np"),
        ("return a", "a, b = 1, 2"),
        ("return a", "a: int = 1"),
        ("return a", "a = 1\na += 1"),
        ("return a", "if sys:\n    a = 1\nelse:\n    a = 2\nimport sys"),
        ("return a", "try:\n    import a\nexcept ImportError:\n    a = None"),
        ("return a", "for a in range(3):\n    pass"),
        ("return a", "with open(__file__) as a:\n    pass"),
        ("return (lambda: [a for _ in x])()", "a = 1"),
        ("class C:\n        a = a", "a = 1"),
        ("global a\n    a = 2", "a = 1"),
        ("y: a = x", "a = 1"),
        ("return a", "from helpers import *"),
    ],
)
def test_slice_keeps_names_that_the_body_reads(
    tmp_path: Path, reader: str, binding: str
) -> None:
    taken = cut(tmp_path, f"{binding}\n{MIX.replace('return x', reader)}")
    assert taken.text.startswith(binding)


@pytest.mark.parametrize(
    "signature",
    ["(x=a)", "(x: a)", "(x) -> a", '(x: "a")', '(x) -> "list[a]"'],
)
def test_slice_keeps_names_that_the_signature_reads(
    tmp_path: Path, signature: str
) -> None:
    source = "a = 1\n" + MIX.replace("(x):", f"{signature}:")
    assert cut(tmp_path, source).text.startswith("a = 1\n")


def test_slice_keeps_names_that_a_decorator_reads(tmp_path: Path) -> None:
    source = "TAGS = ()\n" + MIX.replace("mutates_args=()", "tags=TAGS")
    assert cut(tmp_path, source).text.startswith("TAGS")


def test_slice_keeps_transitive_dependencies(tmp_path: Path) -> None:
    chain = "a = 1\ndef b(): return a\ndef c(): return b()\n"
    assert cut(tmp_path, chain + MIX.replace("return x", "return c()")).text == (
        chain + MIX.replace("return x", "return c()")
    )


def test_slice_keeps_every_binding_of_a_name_in_order(tmp_path: Path) -> None:
    source = "a = 1\nb = 2\na = 3\n" + MIX.replace("return x", "return a")
    assert lines(cut(tmp_path, source))[:2] == ["a = 1", "a = 3"]


def test_slice_omits_a_global_shadowed_by_a_local(
    tmp_path: Path,
) -> None:
    assert "x = 1" not in cut(tmp_path, "x = 1\n" + MIX).text


def test_slice_preserves_comments_and_layout(tmp_path: Path) -> None:
    source = "# about a\na = [1,  # one\n     2]  # two\n"
    mix = MIX.replace("return x", "# why\n    return a")
    assert cut(tmp_path, source + mix).text == source + mix


def test_slice_separates_statements_on_one_line(tmp_path: Path) -> None:
    source = "a = 1; b = missing; c = [\n2]; d = 4\n"
    taken = cut(tmp_path, source + MIX.replace("return x", "return a + d"))
    assert lines(taken)[:2] == ["a = 1", "d = 4"]


def test_slice_returns_future_imports_separately(tmp_path: Path) -> None:
    source = "from __future__ import annotations, division\n" + MIX
    taken = cut(tmp_path, source)
    assert taken.future == ("annotations", "division")
    assert taken.text == MIX.lstrip()


@pytest.mark.parametrize("effect", ["", "torch.manual_seed(0)\n"])
def test_slice_omits_the_main_block(tmp_path: Path, effect: str) -> None:
    main = 'if __name__ == "__main__":\n    torch.ops.mylib.mix(torch.ones(2))\n'
    taken = cut(tmp_path, MIX + effect + main)
    assert effect in taken.text
    assert "__main__" not in taken.text


def test_slice_keeps_a_main_block_whose_else_runs_at_import(
    tmp_path: Path,
) -> None:
    main = 'if __name__ == "__main__":\n    pass\nelse:\n    register()\n'
    assert cut(tmp_path, MIX + main).text == (MIX + main).lstrip()


@pytest.mark.parametrize(
    "effect",
    [
        "torch.manual_seed(0)",
        "[register(name) for name in NAMES]",
        "torch._inductor.lowering.foo = None",
        "table['foo'] = None",
        "a, table['foo'] = 1, 2",
        "table['foo'] += 1",
        "del torch.foo",
        "for name in sorted(NAMES): register(name)",
        "for name in sorted(NAMES): x = register(name)",
        "while register(): pass",
        "with torch.device('cpu'): a = 1",
        "if torch.cuda.is_available(): torch.manual_seed(0)",
        "try: import os\nexcept ImportError: install()",
        "class C: register()",
        "torch.library.define(f'mylib::{name}', '() -> ()')",
        "torch.library.define(f'mylib::part{i}', '() -> ()')",
        "torch.library.define('mylib::part' + suffix, '() -> ()')",
        "m = torch.library.custom_op(name, mutates_args=())(abs)",
        "Library(NAMESPACE, 'DEF').define('mix(Tensor x) -> Tensor')",
        "torch.library.register_fake('aten::add', abs)",
    ],
)
@pytest.mark.parametrize("registration", ["", MIX])
def test_slice_keeps_other_side_effects(
    tmp_path: Path, effect: str, registration: str
) -> None:
    taken = cut(tmp_path, f"unused = 1\n{effect}\n{registration}")
    assert taken.text.strip() == f"{effect}\n{registration}".strip()


def test_slice_keeps_names_that_side_effects_read_and_omits_the_rest(
    tmp_path: Path,
) -> None:
    acts = "NAMES = ['a']\ndef add(name): return name\n[add(n) for n in NAMES]"
    source = f"class Net: pass\n{acts}\nunused = Net()\n{MIX}"
    assert cut(tmp_path, source).text == f"{acts}\n{MIX}"


def test_slice_keeps_a_statement_that_loads_a_library(tmp_path: Path) -> None:
    source = f"unused = 1\nlib = build(\n    1)\n{MIX}"
    assert cut(tmp_path, source).text == MIX.lstrip()
    assert cut(tmp_path, source, callers=[3]).text == f"lib = build(\n    1)\n{MIX}"
    assert cut(tmp_path, source, "lib", callers=[3]).text == MIX.lstrip()


def test_slice_trims_an_import_to_the_needed_names(tmp_path: Path) -> None:
    use = MIX.replace("return x", "return a(x, c.d)")
    source = f"from h import (  # why\n    a,\n    b,\n)\nimport c, e{use}"
    dropped = "from h import b", "import e"
    assert cut(tmp_path, source, *dropped).text == f"from h import a\nimport c{use}"
    assert cut(tmp_path, source).text == source


def test_dropped_statement_stays_if_its_name_is_read(tmp_path: Path) -> None:
    source = f"import random\nS = 1\nrandom.seed(S)\nprint(S)\n{MIX}print(mix)\n"
    taken = cut(tmp_path, source, "random", "@torch.library")
    assert taken.text == f"S = 1\nprint(S)\n{MIX}print(mix)\n"


@pytest.mark.parametrize(
    "effect",
    [
        "for name in NAMES: register(globals()[name])",
        "register(vars())",
        "register(sys.modules[__name__])",
        "exec('unused')",
    ],
)
def test_slice_is_the_whole_file_if_names_are_looked_up_dynamically(
    tmp_path: Path, effect: str
) -> None:
    source = f"unused = 1\n{effect}\n{MIX}"
    taken = cut(tmp_path, source)
    assert taken.text == source


@pytest.mark.parametrize("target", ["def f(): pass", "class C: pass"])
def test_slice_keeps_targets_of_unknown_decorators(tmp_path: Path, target: str) -> None:
    source = f"{MIX}@registry.add('x')\n{target}\n"
    taken = cut(tmp_path, source)
    assert taken.text == source.lstrip()


@pytest.mark.parametrize(
    "harmless",
    [
        '"""Docstring."""',
        "warnings.filterwarnings('ignore')",
        "logging.getLogger('x').setLevel(3)",
        "X = make_table()",
        "X: int = 3",
        "X = []\nX += [1]",
        "import os",
        "import triton",
        "def f(): torch.manual_seed(0)",
        "class C:\n    '''Doc.'''\n    x = 1\n    @property\n    def p(self): g()",
        "@functools.lru_cache(maxsize=None)\ndef f(): pass",
        "@dataclass(frozen=True)\nclass C: pass",
        "@contextlib.contextmanager\ndef f(): yield",
        "@triton.autotune(configs=[triton.Config({})], key=[])\n@triton.jit\n"
        "def f(): pass",
        "@torch.no_grad()\ndef f(): pass",
        "@torch.compile\ndef f(): pass",
        "if sys.version_info < (3,):\n    raise ImportError('old')",
        "assert True",
    ],
)
@pytest.mark.parametrize("registration", ["", MIX.lstrip()])
def test_slice_omits_harmless_statements(
    tmp_path: Path, harmless: str, registration: str
) -> None:
    taken = cut(tmp_path, f"{harmless}\n{registration}")
    assert taken == Definitions(registration)


def test_whole_file_is_its_source_without_future_imports(tmp_path: Path) -> None:
    rest = "# about the seed\ntorch.manual_seed(0)  # why\n\n\nunused = 1\n"
    source = f'"""Doc."""\nfrom __future__ import annotations; import a\n{rest}'
    taken = cut(tmp_path, source, whole=True)
    assert taken == Definitions(f'"""Doc."""\nimport a\n{rest}', ("annotations",))
    assert taken.with_future.startswith("from __future__ import annotations\n")


def test_slice_raises_if_the_file_does_not_parse(tmp_path: Path) -> None:
    with pytest.raises(SyntaxError):
        cut(tmp_path, "def mix(:\n")


def test_slice_raises_if_the_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        slice_file(tmp_path / "missing.py", ["mylib::mix"])


def test_slice_honors_the_declared_encoding(tmp_path: Path) -> None:
    path = tmp_path / "ops.py"
    mix = MIX.replace("return x", 'return "é"')
    path.write_bytes(f"# coding: latin-1\n{mix}".encode("latin-1"))
    assert 'return "é"' in slice_file(path, ["mylib::mix"]).text


# --- the property: the slice registers what the file registers

SAMPLES = {
    "custom_op": """
        import math
        import torch
        custom_op = torch.library.custom_op
        SCALE: float = 2.0
        SCALE *= math.pi
        def scaled(x): return x * SCALE
        @custom_op("mylib::a", mutates_args=())
        def a(x): return scaled(x)
        @a.register_fake
        def _(x): return shape(x)
        @custom_op("mylib::b", mutates_args=())
        def b(x): return a(x) + 1
        @b.register_fake
        def _(x): return shape(x)
        def shape(x): return x
        def backward(x): return scaled(x)
        a.register_autograd(backward)
        class Net:
            def forward(self, x): return b(x)
        """,
    "library": """
        import torch
        lib = torch.library.Library("mylib", "DEF")
        try:
            import nowhere
        except ImportError:
            nowhere = None
        for offset in range(4):
            pass
        lib.define("a(Tensor x) -> Tensor")
        lib.define("b(Tensor x) -> Tensor"); lib.define("c() -> ()")
        def a_cpu(x): return x + offset if nowhere is None else x
        @torch.library.impl(lib, "b", "CPU")
        def b_cpu(x): return a_cpu(x)
        lib.impl("a", a_cpu, "CPU")
        """,
    "helpers_that_are_wrapped": """
        import functools
        import torch
        def traced(function):
            @functools.wraps(function)
            def wrapper(*args): return function(*args)
            return wrapper
        @traced
        def helper(x): return x - Table.shift
        class Table:
            shift = base = 3
        @torch.library.custom_op("mylib::a", mutates_args=())
        def a(x): return helper(x)
        b = torch.library.custom_op("mylib::b", mutates_args=())(lambda x: a(x))
        """,
}


class FakeTorch(ModuleType):
    """Remember who registers what, and run nothing of torch."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.kernels: dict[tuple[str, str], Callable[..., Any]] = {}
        self.library = SimpleNamespace(
            custom_op=self.custom_op, Library=self.open, impl=self.impl
        )

    def custom_op(self, name: str, **_: object) -> Callable[..., "FakeOperator"]:
        def register(function: Callable[..., Any]) -> FakeOperator:
            self.kernels[name, "CPU"] = function
            return FakeOperator(self, name, function)

        return register

    def open(self, namespace: str, _: str) -> SimpleNamespace:
        def keep(name: str, function: Callable[..., Any], key: str) -> None:
            self.kernels[f"{namespace}::{name}", key] = function

        return SimpleNamespace(define=lambda schema: None, impl=keep)

    def impl(self, lib: SimpleNamespace, name: str, key: str) -> Callable[..., Any]:
        return lambda function: lib.impl(name, function, key) or function


class FakeOperator:
    def __init__(self, torch: FakeTorch, name: str, run: Callable[..., Any]) -> None:
        self.torch, self.name, self.run = torch, name, run

    def __call__(self, x: float) -> object:
        return self.run(x)

    def register_fake(self, function: Callable[..., Any]) -> None:
        self.torch.kernels[self.name, "fake"] = function

    def register_autograd(self, function: Callable[..., Any]) -> None:
        self.torch.kernels[self.name, "autograd"] = function


def kernel_results(
    source: str, patch: pytest.MonkeyPatch
) -> dict[tuple[str, str], object]:
    """Run ``source``, then everything that it registered."""
    torch = FakeTorch()
    patch.setitem(sys.modules, "torch", torch)
    exec(compile(dedent(source), "<sample>", "exec"), {"__name__": "sample"})
    return {key: run(1.5) for key, run in torch.kernels.items()}


@pytest.mark.parametrize("sample", SAMPLES)
def test_slice_registers_the_same_kernels_as_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sample: str
) -> None:
    source = SAMPLES[sample]
    taken = cut(tmp_path, source)
    assert len(taken.text) < len(dedent(source))
    expected = kernel_results(source, monkeypatch)
    assert expected
    assert kernel_results(taken.text, monkeypatch) == expected


# --- a user's Triton kernels

KERNELS = """
import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

LIMIT = tl.constexpr(0.75)
CONFIGS = [triton.Config({"block": width}) for width in (32, 64)]
TABLE = {"rows": 4}
OTHER_CONFIGS = [triton.Config({"block": 8})]

def early(configs, arguments):
    return configs[: TABLE["rows"]]

@triton.jit
def clip(value):
    return tl.minimum(value, LIMIT)

@triton.jit
def square(value):
    return value * value

@triton.autotune(configs=CONFIGS, key=["count"], prune_configs_by={"early": early})
@triton.heuristics({"even": lambda arguments: arguments["count"] % 2 == 0})
@triton.jit
def mix_kernel(x, y, count, even: tl.constexpr, block: tl.constexpr):
    place = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + place, clip(tl.load(x + place, place < count)), place < count)

tuned = triton.autotune(configs=OTHER_CONFIGS, key=[])(square)

@triton_op("mylib::mix", mutates_args=())
def mix(x):
    y = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["block"]),)
    wrap_triton(mix_kernel)[grid](x, y, x.numel())
    return y

@triton_op("mylib::other", mutates_args=())
def other(x):
    wrap_triton(tuned)[(1,)](x)
    return x.clone()

@mix.register_kernel("cpu")
def plain_mix(x):
    return x.clamp(max=LIMIT.value)
"""


def test_slice_keeps_triton_kernels_with_their_dependencies(
    tmp_path: Path,
) -> None:
    taken = cut(tmp_path, KERNELS, "@triton_op('mylib::other'")
    left_out = ("OTHER_CONFIGS", "square", "tuned", "other")
    blocks = dedent(KERNELS).strip().split("\n\n")
    kept = [b for b in blocks[2:] if not re.search(rf"\b({'|'.join(left_out)})\b", b)]
    imports_and_constants = [
        line
        for line in "\n".join(blocks[:2]).splitlines()
        if not line.startswith("OTHER_CONFIGS")
    ]
    expected = [*imports_and_constants, *"\n".join(kept).splitlines()]
    assert lines(taken) == [line for line in expected if line]
