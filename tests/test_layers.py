"""Imports point one way, and torch stays in its package."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import networkx as nx
import pytest
from size import count_code_lines, count_packages

ROOT = Path(__file__).resolve().parents[1] / "shrinkfx"

ALLOWED = {
    package: {*words.split()}
    for package, words in {
        "errors": "",
        "system": "errors",
        "program": "errors",
        "protocol": "errors program",
        "failure": "program protocol",
        "findings": "system program protocol failure",
        "preloads": "program protocol",
        "events": "",
        "sweep": "errors system program failure",
        "journal": "errors program failure",
        "search": "errors program failure events journal",
        "check": "errors system program protocol failure events",
        "explain": "errors system program protocol failure findings search check",
        "strategies": "program",
        "testing": "errors program failure search",
        "options": "errors program protocol failure",
        "intake": "errors system program protocol failure preloads check options",
        "versions": "",
        "report": "system program protocol failure findings preloads versions",
        "worker": "errors system program protocol failure versions",
        "run": (
            "errors system program protocol failure findings preloads events sweep "
            "journal search check explain options report"
        ),
        "api": "errors system protocol failure events search check options intake run",
        "campaign": "errors system program protocol findings journal options report",
        "cli": (
            "errors system protocol failure events check options versions api campaign"
        ),
    }.items()
}
"""What each package may import besides itself."""

WORKER_LAYERS = [
    {"private_api"},
    {"__init__", "model", "origin", "weights", "build_cache"},
    {"native"},
    {"forkserver", "cpu_memory", "cuda_memory", "sizes"},
    {"loading", "bare_script", "disk_space"},
    {"eager", "environment"},
    {"graph"},
    {"operators", "printing", "aoti", "interpreter"},
    {"explaining", "listing"},
    {"checking", "preloads", "worker_state", "intake"},
    {"tasks", "child_main"},
    {"starting"},
    {"__main__"},
]
"""Packages of the worker by layer: each imports from itself and from lower layers."""


ACROSS_THE_BOUNDARY = {"intake/in_memory.py": "shrinkfx.worker.intake."}
"""What may import of the worker although it is not there, and which part: an object
of the user's own process is exported in that, which has torch (docs/decisions.md)."""

OUTSIDE = {"__init__", "__main__"}
"""Files at the top that only pass on what others define."""


def modules() -> list[Path]:
    # rglob does not follow the symlink to strategies/.
    found = [*ROOT.rglob("*.py"), *(ROOT / "strategies").glob("*.py")]
    return sorted(p for p in found if p.parent != ROOT or p.stem not in OUTSIDE)


def package_of(path: Path) -> str:
    inside = path.relative_to(ROOT)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imports(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_module_imports_only_what_its_package_may(path: Path) -> None:
    here = package_of(path)
    for name in imports(path.read_text()):
        top, *rest = name.split(".")
        if top == "torch":
            assert here == "worker", f"{path} imports torch"
            assert "forkserver" not in path.parts, f"{path} imports torch"
        part = ACROSS_THE_BOUNDARY.get(str(path.relative_to(ROOT)), "-")
        if top == "shrinkfx" and rest and not name.startswith(part):
            assert rest[0] in ALLOWED[here] | {here}, f"{path} imports {name}"


WORKER = [path for path in modules() if package_of(path) == "worker"]


@pytest.mark.parametrize("path", WORKER, ids=lambda p: str(p.relative_to(ROOT)))
def test_packages_of_the_worker_import_from_below(path: Path) -> None:
    layers = {name: i for i, layer in enumerate(WORKER_LAYERS) for name in layer}
    here = Path(path.relative_to(ROOT / "worker").parts[0]).stem
    for name in imports(path.read_text()):
        parts = name.split(".")
        if parts[:2] == ["shrinkfx", "worker"] and parts[2] != here:
            assert layers[parts[2]] < layers[here], f"{path} imports {name}"


EMULATES = "it replaces functions of Triton's interpreter"
PRIVATE_ELSEWHERE = {
    "interpreter.emulation.assembly": EMULATES,
    "interpreter.emulation.libdevice": EMULATES,
    "interpreter.emulation.logic": EMULATES,
    "intake.watching.origins": "it runs in a user's script, which has no shrinkfx",
}
"""Modules of the worker that use private names directly, with the reason."""

_TRITON_INSIDE = ("triton.runtime", "triton.backends", "triton.compiler")


def private_names(text: str) -> set[str]:
    """Find the private names of PyTorch and Triton in a module."""
    used = set(imports(text))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            used.add(ast.unparse(node))
    inner = re.compile(r"(torch|triton)\.([\w.]+\.)?_[a-zA-Z][\w.]*")
    return {n for n in used if inner.fullmatch(n) or n.startswith(_TRITON_INSIDE)}


@pytest.mark.parametrize("path", WORKER, ids=lambda p: str(p.relative_to(ROOT)))
def test_private_names_of_pytorch_are_in_one_package(path: Path) -> None:
    """To port shrinkfx to another PyTorch, only that package has to be read."""
    module = dotted(path).removeprefix("shrinkfx.worker.")
    found = private_names(path.read_text())
    if module.startswith("private_api."):
        return
    if module in PRIVATE_ELSEWHERE:
        assert found, f"{module} uses none: take it off the list"
    else:
        assert not found, f"{path}: take them from shrinkfx.worker.private_api"


@pytest.mark.parametrize(
    "planted",
    [
        "from torch._inductor import config",
        "import torch\ntorch._C._dispatch_dump('x')",
        "from torch.utils import _pytree as pytree",
        "def f():\n    from triton.runtime import interpreter",
    ],
)
def test_a_private_name_is_found(planted: str) -> None:
    assert private_names(planted)
    assert not private_names("import torch\ntorch.__version__, torch.fx.Graph")


def dotted(path: Path) -> str:
    """Name a module as imports do; a package's own file by the package."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def find_cycles(sources: Mapping[str, str]) -> list[set[str]]:
    """Find modules that import each other, lazily or for their types alone as well.

    Args:
        sources: the text of each module, by its dotted name.
    """
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module, text in sources.items():
        for name in imports(text):
            while name and name not in sources:
                name = name.rpartition(".")[0]
            if name and name != module:
                graph.add_edge(module, name)
    together = nx.strongly_connected_components(graph)
    return [found for found in together if len(found) > 1]


def test_no_modules_import_each_other() -> None:
    sources = {dotted(path): path.read_text() for path in modules()}
    assert find_cycles(sources) == []


@pytest.mark.parametrize(
    "back",
    [
        "import package.a",
        "def lazily():\n    from package import a",
        "if TYPE_CHECKING:\n    from package.a import Name",
    ],
)
def test_a_cycle_is_found(back: str) -> None:
    sources = {
        "package.a": "from package.b import x",
        "package.b": back,
        "package.c": "",
    }
    assert {"package.a", "package.b"} in find_cycles(sources)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_is_unpickled_outside_of_the_worker(path: Path) -> None:
    """What comes from a file of somebody else's is read where it may do harm."""
    unpicklers = {"pickle", "shelve", "marshal", "dill", "cloudpickle", "joblib"}
    used = {name.split(".")[0] for name in imports(path.read_text())}
    assert not used & unpicklers


UNTYPED = {
    # Read or written as JSON, in a form that another program or session reads.
    "cli.task_output": "what --json prints",
    "events": "lines of JSON for a user interface",
    "intake.capture.records": "JSON of records, which older captures lack fields of",
    "intake.dump": "settings by their names, each of a type of its own",
    "journal.journal": "rows and facts hold JSON",
    "program.record": "field types of a record by name",
    "run.folder": "Reduction.summary: what summary.json holds",
    "system.folders": "writes any JSON file",
    "report.issue.text": "the values of a template, by the names in it",
    "report.summary": "what summary.json holds",
    "report.sweep": "writes sweep.json",
    "report.template": "fills in templates with such values",
    "run.explaining": "facts of the journal, and files of JSON",
    "run.retrieve": "facts of the journal",
    "run.sweep": "what sweep.json holds",
    "run.observe": "facts of the journal",
    "worker.loading.archive": "reads JSON of PyTorch's schema",
    "worker.loading.devices": "rewrites JSON of a .pt2",
    # torch's own, or Python's.
    "api": "keyword arguments of a module",
    "intake.in_memory": "keyword arguments of a module",
    "worker.graph.rebuild": "what stands for a node: a node, or a number",
    "worker.interpreter.backend": "names of generated code, weights, script objects",
    "worker.interpreter.cuda_source": "names of generated code",
    "worker.loading.source_archive": "names of printed code, and what torch.save holds",
    "worker.intake.runnable": "names of a script's code",
    "worker.intake.watching.entry_points": "keyword arguments of torch's functions",
    "worker.intake.watching.origins": "names of modules of a script",
    "worker.intake.watching.programs": "keyword arguments of torch's functions",
    "worker.listing.stand_ins": "names of printed code",
    "worker.model": "keyword arguments of a call",
    "worker.printing.module": "names of printed code, and what torch.save holds",
    "worker.sizes.read_space": "metadata of nodes",
}
"""Modules with mappings of anything, and what these are. Whoever knows the names gives
them a record instead."""

JSON_EDGE = re.compile(r"\w*(to|from)_json")
"""Functions that a record is written and read by."""


def untyped(text: str) -> list[int]:
    """Find mappings from names to anything, by their lines."""
    tree = ast.parse(text)
    edge = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and JSON_EDGE.fullmatch(node.name)
        for inner in ast.walk(node)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and id(node) not in edge
        and _UNTYPED.fullmatch(ast.unparse(node))
    ]


_UNTYPED = re.compile(r"(Mutable)?(Mapping|[Dd]ict)\[str, (Any|object)\]")


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_what_is_known_by_names_is_a_record(path: Path) -> None:
    """Whoever misspells a name shall hear of it from mypy."""
    if package_of(path) == "protocol":
        return
    module, lines = dotted(path).removeprefix("shrinkfx."), untyped(path.read_text())
    assert not lines or module in UNTYPED, f"{path}: lines {lines}"
    assert lines or module not in UNTYPED, f"{module} holds none: take it off the list"


@pytest.mark.parametrize(
    "planted",
    [
        "def f(x: Mapping[str, Any]) -> None: ...",
        "def f() -> dict[str, Any]: ...",
        "x: list[Mapping[str, object]] = []",
        "class A:\n    def of(self) -> 'int':\n        y: dict[str, object] = {}",
    ],
)
def test_an_untyped_mapping_is_found(planted: str) -> None:
    assert untyped(planted)
    assert (
        not untyped(planted.replace("def f", "def to_json")) or "def f" not in planted
    )
    assert not untyped(planted.replace("Any", "int").replace("object", "int"))


def test_every_package_is_listed() -> None:
    assert {package_of(p) for p in modules()} == set(ALLOWED)


@pytest.mark.parametrize("arguments", [["--help"], ["--list-strategies"]])
def test_command_line_does_not_import_what_takes_long(arguments: list[str]) -> None:
    program = (
        "import sys; from shrinkfx.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "sys.exit(bool({'torch', 'hypothesis', 'numpy'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout


@pytest.mark.parametrize(
    ("program", "unneeded"),
    [
        ("import shrinkfx", "shrinkfx.api"),
        ("import shrinkfx.worker.__main__", "shrinkfx.api"),
        ("from shrinkfx.cli.parser import make_parser; make_parser()", "networkx"),
        ("import shrinkfx.cli.main", "networkx"),
    ],
)
def test_nothing_is_imported_before_it_is_needed(program: str, unneeded: str) -> None:
    """It takes half a second: of ``--help``, and of each worker."""
    check = f"import sys; {program}; sys.exit({unneeded!r} in sys.modules)"
    command = [sys.executable, "-c", check]
    subprocess.run(command, cwd=ROOT.parent, check=True)


def test_strategies_refuse_a_second_name() -> None:
    command = [sys.executable, "-c", "import strategies"]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, check=False)
    assert b"import shrinkfx.strategies" in done.stderr


BUDGETS = {
    "api": 505,
    "check": 3_381,
    "cli": 1_753,
    "events": 360,
    "explain": 2_458,
    "failure": 1_490,
    "findings": 901,
    "intake": 2_024,
    "journal": 377,
    "options": 587,
    "preloads": 920,
    "program": 2_631,
    "protocol": 1_194,
    "report": 3_395,
    "run": 5_191,
    "search": 1_380,
    "strategies": 810,
    "sweep": 533,
    "system": 550,
    "testing": 370,
    "top": 175,
    "campaign": 906,
    "worker": 17_183,
}
"""The most code lines of each package. Raising one needs a dated reason in
``docs/decisions.md``; lower it when a package has become smaller."""


def test_packages_keep_their_budgets() -> None:
    counted = count_packages()
    assert counted.keys() == BUDGETS.keys()
    above = {name: n for name, n in counted.items() if n > BUDGETS[name]}
    assert above == {}


def test_code_lines_are_counted_without_blank_lines_comments_and_docstrings() -> None:
    text = '"""Text.\n\nMore."""\n\nimport os  # why\n\n# a comment\nx = """\na\n"""\n'
    assert count_code_lines(text) == 4
