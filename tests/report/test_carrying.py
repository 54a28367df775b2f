"""What a repro carries of the modules, libraries and files that a preload uses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from test_repro import about

from shrinkfx.intake.preload_choice import SETTINGS, render_settings
from shrinkfx.preloads.bundle_builder import build_bundle
from shrinkfx.preloads.custom_code_sources import mark_as_generated
from shrinkfx.preloads.preload_bundle import Preload, PreloadBundle, PreloadCut
from shrinkfx.program.uninstalled_files import ONLY_ON, Loading, UninstalledFiles
from shrinkfx.protocol.captured import ImportedValue
from shrinkfx.report.repro import write_registrations

FAKE_TORCH = """
from types import SimpleNamespace

REGISTERED = []

def custom_op(name, mutates_args):
    return lambda function: REGISTERED.append((name, function(2))) or function

library = SimpleNamespace(custom_op=custom_op)
ops = SimpleNamespace(load_library=lambda path: REGISTERED.append(open(path).read()))
"""
MIX = """
import torch
@torch.library.custom_op("mylib::mix", mutates_args=())
def mix(x): return {0}
"""


def registered(carried: PreloadBundle, folder: Path) -> str:
    """Run what registers operators where nothing else is."""
    home = folder / "stranger"
    home.mkdir()
    (home / "torch.py").write_text(FAKE_TORCH)
    for name, file in carried.files.items():
        (home / name).write_bytes(file.read_bytes())
    text = write_registrations(about(), carried.definitions, carried.unpacking)
    script = home / "repro.py"
    script.write_text(f"{text}\nprint(torch.REGISTERED)\n")
    assert str(folder) not in text
    command = [sys.executable, "-I", "-c", _RUN, str(script)]
    done = subprocess.run(
        command, cwd="/", check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


_RUN = """
import runpy, sys, os
sys.path.insert(0, os.path.dirname(sys.argv[1]))
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def seen(folder: Path, *files: str, loads: Sequence[Loading] = ()) -> UninstalledFiles:
    """Tell of modules as a worker that has imported them does."""
    modules = {}
    for name in files:
        parts = Path(name).with_suffix("").parts
        dotted = parts[:-1] if parts[-1] == "__init__" else parts
        modules[".".join(dotted)] = str(folder / name)
    libraries = list(dict.fromkeys(each.library for each in loads))
    callers = [(each.file, each.span[0]) for each in loads]
    return UninstalledFiles(modules, libraries, (), loads, callers)


def cut_of(
    preload: Path | str,
    file: Path,
    beside: UninstalledFiles,
    cut: PreloadCut | None = None,
) -> PreloadBundle:
    each = Preload(str(preload), file)
    return build_bundle([each], beside, cut or PreloadCut())


def test_transitively_imported_module_is_carried(tmp_path: Path) -> None:
    home = tmp_path / "code"
    home.mkdir()
    (home / "ops.py").write_text("import helper\n" + MIX.format("helper.f(x)"))
    (home / "helper.py").write_text("import deep.er\ndef f(x): return deep.er.TWO * x")
    (home / "deep").mkdir()
    (home / "deep" / "er.py").write_text("TWO = 2\n")
    (home / "unused.py").write_text("raise SystemExit\n")
    carried = cut_of(home / "ops.py", home / "ops.py", seen(home, "helper.py"))
    assert carried.modules == ("deep.er", "helper")
    assert "def mix" in carried.definitions[0].text
    assert registered(carried, tmp_path) == "[('mylib::mix', 4)]"


def test_package_module_keeps_its_dotted_name(tmp_path: Path) -> None:
    home = tmp_path / "code" / "my_pkg"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("from .scale import SCALE\n")
    (home / "scale.py").write_text("SCALE = 3\n")
    (home / "ops.py").write_text("from . import SCALE" + MIX.format("x * SCALE"))
    names = [f"my_pkg/{name}.py" for name in ("__init__", "scale", "ops")]
    beside = seen(home.parent, *names)
    carried = cut_of("my_pkg.ops", home / "ops.py", beside)
    assert carried.definitions[0].text == "import my_pkg.ops"
    assert carried.modules == ("my_pkg", "my_pkg.ops", "my_pkg.scale")
    assert registered(carried, tmp_path) == "[('mylib::mix', 6)]"


def test_dynamically_imported_module_is_carried(tmp_path: Path) -> None:
    home = tmp_path / "code"
    home.mkdir()
    text = "import importlib\nhelper = importlib.import_module('hel' + 'per')\n"
    (home / "ops.py").write_text(text + MIX.format("helper.TWO * x"))
    (home / "helper.py").write_text("TWO = 2\n")
    beside = seen(home, "ops.py", "helper.py")
    carried = cut_of(home / "ops.py", home / "ops.py", beside)
    assert carried.modules == ("helper",)
    assert registered(carried, tmp_path) == "[('mylib::mix', 4)]"
    unused = cut_of(
        home / "ops.py", home / "ops.py", beside, PreloadCut(modules=frozenset())
    )
    assert unused.modules == ()


PACKAGE = {
    "pkg/__init__.py": "from . import mix, gone\n__all__ = ['mix', 'gone']\n",
    "pkg/mix.py": f"import torch\nfrom .scale import by, ONE{MIX.format('by(x)')}",
    "pkg/gone.py": "import torch\nfrom .scale import ONE\n"
    + MIX.format("x * ONE").replace("mix", "gone"),
    "pkg/scale.py": "import logging\nimport os\nONE = 1\nTWO = 2\n"
    "logger = logging.getLogger(__name__)\ndef by(x): return x * TWO\n",
}
"""A package that registers two operators, each from a module of its own."""


@pytest.mark.parametrize("preload", ["pkg", "pkg.mix", "all_ops.py"])
def test_carried_modules_are_sliced_like_preloads(tmp_path: Path, preload: str) -> None:
    home = tmp_path / "code"
    files = PACKAGE | {"all_ops.py": "import pkg\n"}
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    beside = seen(home, *PACKAGE)
    file = {"pkg": home / "pkg/__init__.py", "pkg.mix": home / "pkg/mix.py"}.get(
        preload, home / preload
    )
    sliced = cut_of(preload, file, beside)
    assert "logg" not in sliced.unpacking
    gone = [unit for unit, code in sliced.units.items() if code in NOT_NEEDED]
    assert len(gone) >= 2
    dropped = frozenset(gone)
    least = cut_of(preload, file, beside, PreloadCut(dropped=dropped, modules=SEEN))
    assert least.modules == ("pkg", "pkg.mix", "pkg.scale")
    assert "from .scale import by\n" in least.unpacking
    assert "ONE" not in least.unpacking
    assert registered(least, tmp_path) == "[('mylib::mix', 4)]"
    cut = PreloadCut(dropped=dropped, modules=SEEN, joined=True)
    in_one = cut_of(preload, file, beside, cut)
    assert (in_one.modules, in_one.unpacking) == ((), "")
    assert in_one.definitions[0].text.count("import") == 1
    (tmp_path / "again").mkdir()
    assert registered(in_one, tmp_path / "again") == "[('mylib::mix', 4)]"


NOT_NEEDED = ("from . import gone", "from .scale import ONE")
SEEN = frozenset({"pkg", "pkg.mix", "pkg.scale"})


def test_slice_keeps_names_that_other_modules_import(tmp_path: Path) -> None:
    home = tmp_path / "code"
    home.mkdir()
    texts = {
        "ops.py": "import torch, a, b\nfrom c import *\nimport d"
        + MIX.format("a.ONE + b.ONE + C + getattr(d, 'D') - x"),
        "a.py": "from z import ONE\n",
        "b.py": "ONE = 1\nTWO = 2\n",
        "c.py": "C = 1\nTWO = 2\n",
        "d.py": "D = 1\nTWO = 2\n",
        "z.py": "ONE = 1\nTWO = 2\n",
    }
    for name, text in texts.items():
        (home / name).write_text(text)
    file = home / "ops.py"
    carried = cut_of(file, file, seen(home, *(set(texts) - {"ops.py"})))
    assert carried.modules == ("a", "b", "c", "d", "z")
    assert "TWO = 2" not in carried.unpacking
    assert registered(carried, tmp_path) == "[('mylib::mix', 2)]"


def test_preload_imported_by_its_helper_is_carried_as_a_module(tmp_path: Path) -> None:
    home = tmp_path / "code"
    home.mkdir()
    (home / "ops.py").write_text("ONE = 1\nimport helper" + MIX.format("helper.f(x)"))
    (home / "helper.py").write_text("import ops\ndef f(x): return x + ops.ONE\n")
    beside = seen(home, "ops.py", "helper.py")
    text = (home / "ops.py").read_text()
    carried = cut_of(home / "ops.py", home / "ops.py", beside)
    assert carried.modules == ("helper", "ops")
    assert "import helper" in text


@pytest.mark.parametrize("registers", [True, False])
def test_preload_imported_by_another_preload_is_carried_as_a_module(
    tmp_path: Path, registers: bool
) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    other = MIX.format("x").replace("mix", "mix_too") if registers else ""
    first.write_text("TWO = 2\n" + other)
    second.write_text("import first" + MIX.format("x * first.TWO"))
    preloads = [Preload(str(file), file) for file in (first, second)]
    cut = PreloadCut(whole=registers)
    carried = build_bundle(preloads, UninstalledFiles(), cut)
    assert carried.modules == ("first",)
    assert "('mylib::mix', 4)" in registered(carried, tmp_path)


def test_library_path_computed_from_file_still_resolves(
    tmp_path: Path,
) -> None:
    home = tmp_path / "code"
    (home / "build").mkdir(parents=True)
    (home / "build" / "mine.so").write_text("loaded")
    find = "__import__('glob').glob(__file__[:-6] + '*/*.so')[0]"
    (home / "ops.py").write_text(f"import torch\ntorch.ops.load_library({find})\n")
    file, library = str(home / "ops.py"), str(home / "build" / "mine.so")
    loading = Loading(file, (2, 0, 2, 70), library)
    carried = cut_of(home / "ops.py", home / "ops.py", seen(home, loads=[loading]))
    assert carried.files == {"mine.so": Path(library)}
    assert carried.modules == ("ops",)
    assert registered(carried, tmp_path) == "['loaded']"


@pytest.mark.parametrize(
    "call",
    [
        "torch.ops.load_library(PATH)",
        "torch.ops.load_library(\n    PATH,\n)",
        "lib = build_somewhere(PATH)",
    ],
)
@pytest.mark.parametrize("where", ["z/cache/deep", "a/code/build", "a/build"])
def test_library_loading_call_is_rewritten_to_the_carried_path(
    tmp_path: Path, call: str, where: str
) -> None:
    home, cache = tmp_path / "a" / "code", tmp_path / where
    home.mkdir(parents=True)
    cache.mkdir(parents=True)
    (cache / "theirs.so").write_text("loaded")
    text = f"import torch\nPATH = '{cache}/theirs.so'[:]\n"
    start = text.count("\n") + 1
    (home / "ops.py").write_text(f"{text}{call}\n")
    column = call.index("=") + 2 if "=" in call else 0
    last = call.splitlines()[-1]
    span = start, column, start + call.count("\n"), len(last)
    loading = Loading(str(home / "ops.py"), span, str(cache / "theirs.so"))
    beside = seen(home, loads=[loading])
    carried = cut_of(home / "ops.py", home / "ops.py", beside)
    assert carried.files == {"theirs.so": cache / "theirs.so"}
    assert "PATH" not in carried.unpacking
    assert registered(carried, tmp_path) == "['loaded']"


def test_built_extension_module_is_imported_by_name(
    tmp_path: Path,
) -> None:
    home, cache = tmp_path / "a" / "code", tmp_path / "z" / "cache" / "deep"
    home.mkdir(parents=True)
    cache.mkdir(parents=True)
    (cache / "fast.so").write_text("no library")
    text = "import torch\nfast = load(\n    'fast', ['fast.cpp'])\n"
    (home / "ops.py").write_text(text + MIX.format("fast.mix(x)"))
    span = 2, 7, 3, len("    'fast', ['fast.cpp'])")
    library = str(cache / "fast.so")
    loading = Loading(str(home / "ops.py"), span, library, is_module=True)
    beside = seen(home, loads=[loading])
    carried = cut_of(home / "ops.py", home / "ops.py", beside)
    assert "fast = __import__('fast')" in carried.unpacking
    assert "'./fast.so': 'fast.so'" in carried.unpacking


def test_small_nearby_data_file_is_carried_but_large_or_distant_is_not(
    tmp_path: Path,
) -> None:
    home = tmp_path / "a" / "code"
    home.mkdir(parents=True)
    (home / "table.txt").write_text("7")
    (tmp_path / "far.txt").write_text("8")
    with (home / "huge.bin").open("wb") as huge:
        huge.truncate(65 << 20)
    read = "import pathlib\nROW = pathlib.Path(__file__).with_name('table.txt')"
    (home / "ops.py").write_text(read + MIX.format("ROW.read_text()"))
    names = [str(home / "table.txt"), str(home / "huge.bin"), str(tmp_path / "far.txt")]
    beside = UninstalledFiles(files=names)
    carried = cut_of(home / "ops.py", home / "ops.py", beside)
    assert carried.files == {"table.txt": home / "table.txt"}
    assert registered(carried, tmp_path) == "[('mylib::mix', '7')]"


def test_carried_files_with_equal_names_are_numbered(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ops.so").write_text(name)
        (tmp_path / name / "repro.py").write_text(name)
    ours = [str(tmp_path / n / f) for f in ("ops.so", "repro.py") for n in "ab"]
    (tmp_path / "ops.py").write_text(MIX.format("x"))
    beside = UninstalledFiles(libraries=ours[:2], files=ours[2:])
    carried = cut_of(tmp_path / "ops.py", tmp_path / "ops.py", beside)
    assert sorted(carried.files) == ["2-ops.so", "2-repro.py", "3-repro.py", "ops.so"]


def test_preload_with_an_empty_slice_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(MIX.format("x"))
    (tmp_path / "other.py").write_text(
        "import helper" + MIX.format("helper.f(x)").replace("mylib", "theirs")
    )
    (tmp_path / "helper.py").write_text("def f(x): return x\n")
    (tmp_path / "lib.so").write_bytes(b"elf")
    preloads = [
        Preload(str(tmp_path / name), tmp_path / name)
        for name in ("ops.py", "other.py")
    ]
    preloads += [Preload(str(tmp_path / "lib.so")), Preload("installed")]
    sliced = build_bundle(preloads, UninstalledFiles(), PreloadCut())
    assert list(sliced.kept.values()) == ["cut", "cut", "library", "imported"]
    extra = {str(tmp_path / "lib.so"), "installed", str(tmp_path / "other.py")}
    least = PreloadCut(dropped=frozenset(u for u in sliced.units if u[0] in extra))
    assert len(least.dropped) == 4
    carried = build_bundle(preloads, UninstalledFiles(), least)
    assert list(carried.kept.values()) == ["cut", *3 * ["not needed"]]
    assert (carried.files, carried.modules, carried.unpacking) == ({}, (), "")
    assert [part.text for part in carried.definitions][1:] == ["", "", ""]
    whole = build_bundle(preloads, UninstalledFiles(), PreloadCut(whole=True))
    assert list(whole.kept.values()) == ["whole", "whole", "library", "imported"]
    assert whole.modules == ("helper",)


def test_module_source_with_quotes_and_escapes_is_embedded_verbatim(
    tmp_path: Path,
) -> None:
    odd = "A = '''x'''\nB = 'a\\nb\\\\'\nC = r'\\d'\nD = \"\"\"'''\"\"\"\n# 'end'"
    (tmp_path / "helper.py").write_text(odd)
    text = "import helper" + MIX.format("helper.A + helper.B + helper.C + helper.D")
    (tmp_path / "ops.py").write_text(text)
    carried = cut_of(tmp_path / "ops.py", tmp_path / "ops.py", UninstalledFiles())
    expected = "x" + "a\nb\\" + "\\d" + "'''"
    assert registered(carried, tmp_path) == repr([("mylib::mix", expected)])


@pytest.mark.parametrize("old", ["print 'two'", "x = 1\0", "# coding: nonsense"])
def test_guarded_import_of_an_unreadable_module_is_tolerated(
    tmp_path: Path, old: str
) -> None:
    home = tmp_path / "code"
    home.mkdir()
    tried = "try: import old\nexcept Exception: old = None"
    (home / "ops.py").write_text(tried + MIX.format("old or x"))
    (home / "old.py").write_text(old)
    carried = cut_of(home / "ops.py", home / "ops.py", seen(home, "ops.py"))
    assert carried.modules == ()
    assert registered(carried, tmp_path) == "[('mylib::mix', 2)]"


def test_deleted_file_is_not_carried(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(MIX.format("x"))
    beside = UninstalledFiles(files=[str(tmp_path / "made-for-a-moment.txt")])
    assert cut_of(tmp_path / "ops.py", tmp_path / "ops.py", beside).files == {}


@pytest.mark.parametrize("way", ["'{}/scale.txt'", "(\n'{}'\n'/scale.txt'\n)"])
@pytest.mark.parametrize("where", ["code", "code/data", "far/away"])
def test_absolute_data_file_path_is_rewritten_to_the_repro_folder(
    tmp_path: Path, way: str, where: str
) -> None:
    home, data = tmp_path / "a" / "code", tmp_path / "a" / where
    for folder in (home, data):
        folder.mkdir(parents=True, exist_ok=True)
    (data / "scale.txt").write_text("7")
    scale = f"ROW = open({way.format(data)}).read()"
    (home / "ops.py").write_text(scale + MIX.format("ROW"))
    beside = UninstalledFiles(files=[str(data / "scale.txt")])
    carried = cut_of(home / "ops.py", home / "ops.py", beside)
    assert carried.files == {"scale.txt": data / "scale.txt"}
    assert carried.tied == ()
    (data / "scale.txt").rename(tmp_path / "scale.txt")
    carried = replace(carried, files={"scale.txt": tmp_path / "scale.txt"})
    assert registered(carried, tmp_path) == "[('mylib::mix', '7')]"


@pytest.mark.parametrize(
    ("size", "read"),
    [
        (1, "open(b'{}/far/table.txt')"),
        (1, "open('file:{}/far/table.txt'[5:])"),
        (1, "sorted(glob('{}/*/*.txt'))"),
        (1, "open(os.path.join('{}/far', 'table.txt'))"),
        (1, "open('{}' + '/far/table.txt')"),
        (65 << 20, "open('{}/far/table.txt')"),
    ],
)
def test_header_names_files_that_the_repro_cannot_carry(
    tmp_path: Path, size: int, read: str
) -> None:
    home, table = tmp_path / "code", tmp_path / "far" / "table.txt"
    home.mkdir()
    table.parent.mkdir()
    with table.open("wb") as file:
        file.truncate(size)
    text = f"ROW = {read.format(tmp_path)}\n{MIX.format('ROW')}"
    (home / "ops.py").write_text(text)
    carried = cut_of(
        home / "ops.py", home / "ops.py", UninstalledFiles(files=[str(table)])
    )
    assert carried.tied == (str(table),)
    assert any(line.startswith(ONLY_ON) for line in carried.header_remarks)
    assert "table.txt" in " ".join(carried.header_remarks)
    assert str(tmp_path) not in " ".join(carried.header_remarks)


PASSES = """
import torch
from hashing import get_hash_for_files

aten = torch.ops.aten

class Drop:
    def __call__(self, graph): return aten.relu
    def uuid(self): return get_hash_for_files((__file__,))

drop = Drop()
"""


def with_settings(
    home: Path, passes: str, preload: str, cut: PreloadCut
) -> PreloadBundle:
    """Carry a package's module, and what shrinkfx has written to set a pass of it."""
    intake = home / "shrinkfx-out" / "m-1" / "intake"
    for folder in (intake, home / "pkg"):
        folder.mkdir(parents=True, exist_ok=True)
    (home / "pkg" / "__init__.py").write_text("")
    (home / "pkg" / "passes.py").write_text(passes)
    settings = ImportedValue("pkg.passes", "Drop", "()")
    (intake / "preload_settings.py").write_text(
        mark_as_generated(render_settings({"first": settings}), SETTINGS)
    )
    text = f"import sys\n\nsys.path.insert(0, {str(home)!r})\nimport pkg.passes\n"
    ours = mark_as_generated(text, "imports pkg.passes from its own folder")
    (intake / "preload_pkg_passes.py").write_text(ours)
    first = {
        "pkg.passes": Preload("pkg.passes", home / "pkg" / "passes.py"),
        "preload_pkg_passes.py": Preload(str(intake / preload), intake / preload),
    }
    last = Preload(str(intake / "preload_settings.py"), intake / "preload_settings.py")
    beside = seen(home, "pkg/__init__.py", "pkg/passes.py")
    return build_bundle([first[preload], last], beside, cut)


@pytest.mark.parametrize("preload", ["pkg.passes", "preload_pkg_passes.py"])
def test_restored_custom_pass_is_inlined_in_the_script(
    tmp_path: Path, preload: str
) -> None:
    carried = with_settings(tmp_path / "code", PASSES, preload, PreloadCut(joined=True))
    text = "\n".join(each.text for each in carried.definitions)
    assert (carried.unpacking, carried.modules) == ("", ())
    assert text.count("class Drop") == 1
    assert "torch._inductor.config.first = Drop()" in text
    assert "pkg" not in text
    assert "sys.path" not in text


@pytest.mark.parametrize(
    "cut", [PreloadCut(joined=True), PreloadCut(), PreloadCut(whole=True)]
)
@pytest.mark.parametrize("preload", ["pkg.passes", "preload_pkg_passes.py"])
def test_module_that_cannot_be_inlined_is_imported_once(
    tmp_path: Path, preload: str, cut: PreloadCut
) -> None:
    """Nothing of the folder goes along in which shrinkfx has written files."""
    passes = f"{PASSES}HERE = __file__\nprint(HERE)\n"
    carried = with_settings(tmp_path / "code", passes, preload, cut)
    lines = "\n".join(each.text for each in carried.definitions).splitlines()
    imports = [line for line in lines if "pkg" in line and "Written" not in line]
    assert set(imports) <= {"import pkg.passes", "from pkg.passes import Drop"}
    assert imports.count("from pkg.passes import Drop") == 1
    assert carried.modules == ("pkg", "pkg.passes")
    assert "sys.path[:0] = [HOME.name]" in carried.unpacking
    assert str(tmp_path) not in "".join([*lines, carried.unpacking])
    assert "shrinkfx-out" not in carried.unpacking
