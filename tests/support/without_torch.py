"""``--without-torch``: all tests that need no torch, and no torch while they run.

Left out are modules that import torch, and tests with the mark ``torch``: those that
start a process that does. Whatever imports it nevertheless fails, in this process and
in those that tests start, whose environment has none.
"""

from __future__ import annotations

import sys
import tempfile
import venv
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

MARKS = ("torch", "aoti", "cuda")
KEPT_OUT = ("torch", "triton", "sympy")
"""torch, and what is only there with it."""

OPTION = "--without-torch"
REASON = "is kept out by --without-torch: mark this test with pytest.mark.torch"

_TORCH = f"""
from pathlib import Path
(Path(__file__).parent / "wanted").touch()
raise ImportError("torch {REASON}")
"""
"""What processes below find as torch: it tells, and refuses."""

_ALL_ELSE = "import site; list(map(site.addsitedir, {folders!r}))\n"


class _NoTorch:
    """Finds torch before others do, and refuses; a module that asks is left out."""

    is_collecting = True

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in KEPT_OUT and self.is_collecting:
            pytest.skip(f"imports {name}", allow_module_level=True)
        if name in KEPT_OUT:
            raise ImportError(f"{name} {REASON}")
        return None


def _environment_without_torch(folder: Path) -> Path:
    """Make one that has all else, whatever variables a process is started with."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "torch.py").write_text(_TORCH)
    installed = [path for path in sys.path if path.endswith("-packages")]
    (packages / "all_else.pth").write_text(_ALL_ELSE.format(folders=installed))
    return packages


class _Without:
    """The hooks of a run without torch."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="shrinkfx-without-torch-")
        self._packages = _environment_without_torch(Path(self._folder.name))
        self._executable = sys.executable
        sys.executable = str(Path(self._folder.name) / "bin" / "python")
        self._finder = _NoTorch()
        sys.meta_path.insert(0, self._finder)

    def pytest_unconfigure(self) -> None:
        sys.meta_path.remove(self._finder)
        sys.executable = self._executable
        self._folder.cleanup()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        self._finder.is_collecting = False
        out = [item for item in items if any(map(item.get_closest_marker, MARKS))]
        items[:] = [item for item in items if item not in out]
        config.hook.pytest_deselected(items=out)

    @pytest.hookimpl(trylast=True)  # what raises first would leave fixtures as they are
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        wanted = self._packages / "wanted"
        if wanted.exists():
            wanted.unlink()
            pytest.fail(f"{item.name} starts what wants torch, which {REASON}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="all tests that need no torch")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(OPTION):
        assert "torch" not in sys.modules, "another plugin has imported it"
        config.pluginmanager.register(_Without())
