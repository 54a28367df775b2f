"""Functions that a script puts into Inductor when it runs, not when it is imported."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch._inductor.codegen.cpp import CppVecOverrides
from torch._inductor.graph import GraphLowering
from torch._inductor.lowering import lowerings, register_lowering

from shrinkfx.intake.preload_choice import choose_preloads, render_settings
from shrinkfx.protocol.captured import CapturedProgram, ImportedValue, Origin
from shrinkfx.worker.intake.watching.event_log import torch_folder
from shrinkfx.worker.intake.watching.origins import Origins, find_entries
from shrinkfx.worker.intake.watching.programs import describe_entries

pytestmark = pytest.mark.torch

COSH = torch.ops.aten.cosh.default
LOWERING = "torch._inductor.lowering"
IN_TABLE = f"{LOWERING}.lowerings[torch.ops.aten.cosh.default]"
PRINTER = "torch._inductor.codegen.cpp.CppVecOverrides.cosh"


def lower(x: object) -> object:
    return x


def write(x: str) -> str:
    return x


def trace(function: Callable[..., object]) -> Callable[..., object]:
    """Return a wrapper with the names of a function."""

    @functools.wraps(function)
    def traced(*args: object) -> object:
        return function(*args)

    return traced


@trace
def lower_traced(x: object) -> object:
    return x


@functools.wraps(GraphLowering.run_node)
def run_node(*args: object) -> object:
    return args


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """Return Inductor's table of lowerings, which is restored afterwards."""
    monkeypatch.setitem(lowerings, COSH, lowerings[COSH])
    monkeypatch.setattr(CppVecOverrides, "cosh", CppVecOverrides.cosh)
    return lowerings


def describe() -> dict[str, ImportedValue]:
    return describe_entries(find_entries())


def run_restored_settings(described: dict[str, ImportedValue]) -> None:
    exec(render_settings(described), {"torch": torch})


def test_functions_in_tables_and_classes_are_restored(table: dict[Any, Any]) -> None:
    before = describe()
    original, printer = table[COSH], vars(CppVecOverrides)["cosh"]
    table[COSH] = lower
    CppVecOverrides.cosh = staticmethod(write)  # type: ignore[method-assign]
    described = describe()
    assert before.keys().isdisjoint({IN_TABLE, PRINTER})
    assert described.keys() - before.keys() == {IN_TABLE, PRINTER}
    table[COSH] = original
    CppVecOverrides.cosh = printer  # type: ignore[method-assign]
    run_restored_settings(described)
    assert table[COSH] is lower
    assert vars(CppVecOverrides)["cosh"].__func__ is write


@pytest.mark.parametrize("kind", [None, "DEFAULT"])
def test_registered_lowering_is_registered_again(
    table: dict[Any, Any], kind: str | None
) -> None:
    kinds = torch._prims_common.ELEMENTWISE_TYPE_PROMOTION_KIND
    options: dict[str, Any] = {"type_promotion_kind": kinds[kind] if kind else None}
    register_lowering(COSH, broadcast=True, **options)(lower)
    registered = table.pop(COSH)
    table[COSH] = registered
    described = describe()
    table[COSH] = max
    run_restored_settings(described)
    assert table[COSH] is not registered
    assert table[COSH].__wrapped__ is lower
    cells = [cell.cell_contents for cell in table[COSH].__closure__]
    assert cells == [cell.cell_contents for cell in registered.__closure__]


def test_decorated_lowering_is_registered_with_its_decorator(
    table: dict[Any, Any],
) -> None:
    register_lowering(COSH)(lower_traced)
    table[COSH] = table.pop(COSH)
    described = describe()
    table[COSH] = max
    run_restored_settings(described)
    assert table[COSH].__wrapped__ is lower_traced


def test_entry_that_cannot_be_inspected_does_not_hide_the_others(
    table: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    register_lowering(COSH)(lower)
    monkeypatch.setattr(CppVecOverrides, "cosh", staticmethod(write))
    lacking = inspect.ClosureVars({}, {}, {}, set())
    monkeypatch.setattr(inspect, "getclosurevars", lambda _: lacking)
    described = describe()
    assert described[IN_TABLE].why_not == "it cannot be inspected: KeyError"
    assert described[PRINTER].is_imported


@pytest.mark.parametrize(
    ("patch", "name", "is_imported"),
    [
        (run_node, "run_node", True),
        (trace(GraphLowering.run_node), "trace.<locals>.traced", False),
    ],
)
def test_patch_with_copied_names_is_not_imported_from_pytorch(
    monkeypatch: pytest.MonkeyPatch,
    patch: Callable[..., object],
    name: str,
    is_imported: bool,
) -> None:
    monkeypatch.setattr(GraphLowering, "run_node", patch)
    described = describe()["torch._inductor.graph.GraphLowering.run_node"]
    assert described.module == __name__ * is_imported
    assert described.name == name
    assert bool(described.why_not) is not is_imported


@pytest.mark.parametrize(
    ("value", "why"),
    [(lambda x: x, "it is a lambda"), (max, None)],
)
def test_lambda_is_described_as_lost_and_function_of_python_is_ignored(
    table: dict[Any, Any], value: Callable[..., object], why: str | None
) -> None:
    table[COSH] = value
    described = describe()
    assert (IN_TABLE in described) is bool(why)
    if why:
        assert why in described[IN_TABLE].why_not


SCRIPT = """\
import torch
from torch._inductor.lowering import lowerings, register_lowering
COSH = torch.ops.aten.cosh.default
def lower(x):
    return x
def put(op):
    lowerings[op] = lower
"""

LOWER = "def lower(x):\n    return x"
HERE = ImportedValue("patches", "lower", holder=LOWERING)
INNER = ImportedValue(
    name="put.<locals>.inner", holder=LOWERING, why_not="it is put.<locals>.inner"
)


@pytest.mark.parametrize(
    ("statement", "value", "is_set"),
    [
        ("", HERE, False),
        ("", INNER, False),
        ("lowerings[torch.ops.aten.cosh.default] = lower", HERE, True),
        ("lowerings[torch.ops.aten.sinh.default] = lower", HERE, False),
        ("for op in (COSH,):\n    lowerings[op] = lower", HERE, True),
        ("register_lowering(COSH)(lower)", HERE, True),
        ("@register_lowering(COSH)\ndef lower(x):\n    return x", HERE, True),
        ("def late():\n    register_lowering(COSH)(lower)", HERE, False),
        ("put(COSH)", INNER, True),
        ("(lambda: put)()", HERE, False),
        ("[put][0](COSH)", HERE, False),
        ("register_lowering(torch.ops.aten.sinh.default)(lower)", HERE, False),
        (f"@register_lowering(torch.ops.aten.sinh)\n{LOWER}", HERE, False),
        (f"@register_lowering(torch.ops.aten.cosh)\n{LOWER}", HERE, True),
        (f"@register_lowering([torch.ops.aten.cosh])\n{LOWER}", HERE, True),
        ("lowerings['sinh'] = lower", HERE, False),
    ],
)
def test_only_entries_that_no_import_sets_are_restored(
    tmp_path: Path, statement: str, value: ImportedValue, is_set: bool
) -> None:
    file = tmp_path / "patches.py"
    file.write_text(SCRIPT + statement)
    origin = Origin("patches", str(file), "", True, f"{LOWERING}.lowerings")
    program = CapturedProgram(origins=(origin,), others={IN_TABLE: value})
    chosen = choose_preloads(program, tmp_path, tmp_path)
    generated = [Path(name).read_text() for name in chosen.names if "settings" in name]
    is_lost = bool(value.why_not) and not is_set
    assert bool(generated) is not (is_set or is_lost)
    assert all(f"{IN_TABLE} = lower\n" in text for text in generated)
    assert [IN_TABLE in text for text in chosen.lacking] == [True] * is_lost
    if is_lost:
        (text,) = chosen.lacking
        assert "define it at the top level of its file" in text


def test_lowering_that_main_of_script_installs_is_copied_with_its_function(
    tmp_path: Path,
) -> None:
    file = tmp_path / "serve.py"
    file.write_text(f"{SCRIPT}if __name__ == '__main__':\n    put(COSH)\n")
    origin = Origin("__main__", str(file), "", True, f"{LOWERING}.lowerings")
    value = ImportedValue("__main__", "lower", holder=LOWERING)
    program = CapturedProgram(origins=(origin,), others={IN_TABLE: value})
    chosen = choose_preloads(program, tmp_path, tmp_path)
    (name,) = chosen.names
    text = Path(name).read_text()
    assert chosen.lacking == ()
    assert "def lower(x):" in text
    assert "def put" not in text
    assert text.endswith(f"import {LOWERING}\n\n{IN_TABLE} = lower\n")


FUSING = """
def register(matcher):
    matcher.PatternEntry().register()

def install(eps=1e-6):
    register(MATCHER)

def install_all(tables):
    MATCHER.PatternEntry().register()

def install_changed(eps):
    eps += 1
    MATCHER.PatternEntry().register()

def install_at(eps, /):
    MATCHER.PatternEntry().register()

def compile():
    lazy_init(MATCHER)
"""


LAZY_INIT = """
def lazy_init(matcher):
    matcher.PatternEntry().register()
"""

PACKED = """
import torch
from . import fuse
fuse.MATCHER = torch.MATCHER
fuse.install()
"""


class PatternEntry:
    """A class with the method of Inductor's pattern matcher that is watched."""

    def register(self) -> None:
        pass


def test_call_that_registers_patterns_is_repeated_in_a_preload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fusing.py").write_text(FUSING)
    monkeypatch.syspath_prepend(tmp_path)
    fusing = importlib.import_module("fusing")
    matcher = ModuleType("matcher")
    monkeypatch.setattr(matcher, "PatternEntry", PatternEntry, raising=False)
    monkeypatch.setattr(fusing, "MATCHER", matcher, raising=False)
    monkeypatch.setattr(PatternEntry, "register", PatternEntry.register)
    origins = Origins()
    origins.watch_patterns(matcher)
    fusing.install()
    fusing.install_all([matcher])  # no literal
    fusing.install_changed(1)
    fusing.install_at((1, "a"))
    code = compile(LAZY_INIT, f"{torch_folder()}/_inductor/fx_passes/a.py", "exec")
    exec(code, vars(fusing))
    fusing.compile()  # PyTorch registers its own patterns
    (tmp_path / "repeats.py").write_text("import fusing\nfusing.install(2)\n")
    importlib.import_module("repeats")  # an import of fusing does not repeat it
    package = tmp_path / "packed"
    package.mkdir()
    (package / "fuse.py").write_text(FUSING)
    (package / "__init__.py").write_text(PACKED)
    monkeypatch.setattr(torch, "MATCHER", matcher, raising=False)
    packed = importlib.import_module("packed.fuse")  # an import repeats its call
    exported = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    of_pass = [fusing.install, packed.install]
    origin, other = origins.list_origins(exported, of_pass, ())
    assert other.registering_calls == ()
    assert origin.registering_calls == (
        "install(eps=1e-06)",
        "install_at((1, 'a'))",
        "install(eps=2)",
    )
    origin = replace(origin, registering_calls=origin.registering_calls[:1])
    chosen = choose_preloads(CapturedProgram(origins=(origin,)), tmp_path, tmp_path)
    module, generated = chosen.names
    assert module == "fusing"
    text = Path(generated).read_text()
    assert text.endswith("from fusing import install\n\ninstall(eps=1e-06)\n")
    assert "a generated preload calls fusing.install(eps=1e-06)" in chosen.notes
