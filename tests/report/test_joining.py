"""Modules as one text: what they did as modules, or a refusal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from shrinkfx.preloads.bundle_builder import CannotInlineError, inline_modules
from shrinkfx.preloads.preload_bundle import PreloadCut
from shrinkfx.preloads.slicing import Slicer
from shrinkfx.preloads.statements import statements_of

SCALE = "import math\nONE = 1\n\n\ndef by(x):\n    return x * math.floor(2.5) * ONE\n"


def inlined(modules: Mapping[str, str], *first: str) -> dict[str, str]:
    """Inline whole modules; those that contain others are packages."""
    packages = {name.rpartition(".")[0] for name in modules}
    files = {
        name: Path(name.replace(".", "/"), "__init__.py")
        if name in packages
        else Path(name.replace(".", "/") + ".py")
        for name in modules
    }
    texts = {files[name]: text for name, text in modules.items()}
    slicer = Slicer(
        *({name: files[name] for name in first}, files, (), ()),
        *(PreloadCut(whole=True), lambda file: statements_of(texts[file], str(file))),
    )
    return inline_modules(slicer.slices(), first)


def run(modules: Mapping[str, str], folder: Path, first: str) -> object:
    """Import modules as such, and take what the first one found."""
    names = {name.rpartition(".")[0] for name in modules}
    for name, text in modules.items():
        path = folder / name.replace(".", "/")
        path = path / "__init__.py" if name in names else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sys.path.insert(0, str(folder))
    try:
        __import__(first)
        return vars(sys.modules[first])["RESULT"]
    finally:
        sys.path.remove(str(folder))
        for name in modules:
            sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "modules",
    [
        {"ops": "from scale import by\nRESULT = by(3)\n", "scale": SCALE},
        {
            "ops": "from middle import by\nRESULT = by(3)\n",
            "middle": "from scale import by\n",
            "scale": SCALE,
        },
        {"ops": "from scale import *\nRESULT = by(3)\n", "scale": SCALE},
        {
            "ops": "import math\nimport scale\nfrom scale import by, ONE\n"
            "RESULT = by(math.ceil(2.5)) - ONE\n",
            "scale": SCALE,
        },
        {
            "ops": "import pkg.scale\nfrom pkg import TWO\nRESULT = TWO\n",
            "pkg": "from .scale import by, ONE\nTWO = by(ONE)\n",
            "pkg.scale": SCALE,
        },
        {
            "ops": "from pkg.by import by\nRESULT = by(3)\n",
            "pkg": "from . import by as p\nimport pkg as q\n",
            "pkg.by": SCALE,
        },
        {
            "ops": "import os.path\nfrom scale import by\nRESULT = by(len(os.sep))\n",
            "scale": f"import os\nSEP = os.sep\n{SCALE}",
        },
        {  # each sees what the other had by then
            "ops": "ONE = 1\nimport other\nfrom other import TWO\nRESULT = TWO\n",
            "other": "from ops import ONE\nTWO = ONE + 1\n",
        },
        {
            "ops": "def _(x): return 1\nfrom scale import by\nRESULT = by(3)\n",
            "scale": f"{SCALE}\ndef _(x): return 2\n",
        },
    ],
)
def test_inlined_modules_behave_like_imported_ones(
    tmp_path: Path, modules: Mapping[str, str]
) -> None:
    text = inlined(modules, "ops")["ops"]
    assert "pkg" not in text
    found: dict[str, object] = {}
    exec(text, found)
    assert found["RESULT"] == run(modules, tmp_path, "ops")
    assert text.count("import math") <= 1


def test_equal_binding_in_two_modules_is_inlined_once() -> None:
    """Almost all that changes Inductor has it."""
    aten = "import torch\naten = torch.ops.aten\n"
    second = f"{aten}from first import A\nB = aten.relu(A)\n"
    texts = {"first": f"{aten}A = aten.cosh(1)\n", "second": second}
    text = inlined(texts, "second")["second"]
    assert text.count("aten = torch.ops.aten") == 1
    other = texts | {"first": texts["first"].replace("ops.aten", "aten")}
    with pytest.raises(CannotInlineError, match="aten is bound"):
        inlined(other, "second")


def test_module_that_hashes_its_own_file_is_inlined() -> None:
    """The text of a pass is then in the file that is hashed."""
    uuid = "def uuid(): return get_hash_for_files((__file__,))\n"
    assert (
        uuid
        in inlined({"ops": "from p import uuid\nuuid()\n", "p": uuid}, "ops")["ops"]
    )
    here = uuid.replace("get_hash", "read")
    with pytest.raises(CannotInlineError, match="refers to itself"):
        inlined({"ops": "from p import uuid\nuuid()\n", "p": here}, "ops")


@pytest.mark.parametrize(
    ("ops", "why"),
    [
        ("import scale\nRESULT = scale.by(3)\n", "read as a module"),
        ("import scale as s\nRESULT = s.by(3)\n", "read as a module"),
        ("from scale import by as b\nRESULT = b(3)\n", "read by another name"),
        ("from scale import by\nONE = 4\nRESULT = by(3)\n", "ONE is bound in"),
        ("import math\nfrom scale import by\nmath = 4\nby(3)\n", "math is bound"),
        ("def f():\n    from scale import by\n    return by\n", "as it runs"),
        ("try:\n    import scale\nexcept OSError:\n    pass\n", "as it runs"),
        (
            "from scale import by\nHERE = __file__\n",
            "refers to itself",
        ),
        (
            "from scale import by\nglobals()['ONE'] = 4\n",
            "refers to itself",
        ),
        ("scale = __import__('scale')\n", "nothing imports scale"),
    ],
)
def test_module_that_cannot_be_inlined_raises(ops: str, why: str) -> None:
    with pytest.raises(CannotInlineError, match=why):
        inlined({"ops": ops, "scale": SCALE}, "ops")


def test_module_imported_by_two_preloads_is_inlined_once() -> None:
    modules = {
        "first": "from scale import by\nA = by(1)\n",
        "second": "import first\nfrom scale import by\nB = by(2)\n",
        "scale": SCALE,
    }
    texts = inlined(modules, "first", "second")
    assert texts["second"] == "B = by(2)\n"
    assert "def by" in texts["first"]
    other_way = inlined(modules, "second", "first")
    assert other_way["first"] == ""
    assert "A = by(1)" in other_way["second"]
