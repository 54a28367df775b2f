"""Children of a server take the library of a user's own operators from one another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from shrinkfx.worker.aoti.shared_libraries import shared_extensions

NINJA = """\
cflags = -isystem /opt/torch/include {flags}

build main.o: compile {source}

build ops.so: link main.o
"""


@pytest.fixture(name="compiled")
def _compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List the texts that were compiled, in the place of what runs ninja."""
    texts: list[str] = []

    def ninja(build_directory: str, verbose: bool, error_prefix: str) -> None:
        texts.append((Path(build_directory) / "main.cpp").read_text())
        assert texts[-1], error_prefix
        (Path(build_directory) / "ops.so").write_text(f"library of {texts[-1]}")

    monkeypatch.setattr(cpp_extension, "_run_ninja_build", ninja)
    return texts


@pytest.fixture(name="build")
def _build(tmp_path: Path) -> Callable[..., str]:
    """Give what compiles a text in a child of its own, and tells what it loads."""

    def build(child: str, text: str, flags: str = "", source: str = "") -> str:
        folder = tmp_path / child
        made = folder / "home" / "ops"
        made.mkdir(parents=True)
        (made / "main.cpp").write_text(text)
        told = NINJA.format(flags=flags, source=source or made / "main.cpp")
        (made / "build.ninja").write_text(told)
        script = folder / "repro.py"
        script.write_text("from torch.utils.cpp_extension import load_inline")
        with shared_extensions(folder, script):
            cpp_extension._run_ninja_build(str(made), False, "no such text")
        return (made / "ops.so").read_text()

    return build


def test_same_extension_source_is_compiled_once(
    build: Callable[..., str], compiled: list[str]
) -> None:
    assert [build("a", "x"), build("b", "x"), build("c", "y")] == [
        "library of x",
        "library of x",
        "library of y",
    ]
    assert compiled == ["x", "y"]


@pytest.mark.parametrize(
    "different",
    [
        [{"flags": "-O1"}, {"flags": "-O2"}],
        [{"flags": "-I/home/user/headers"}] * 2,  # whose content is not known
        [{"source": "/home/user/ops.cpp"}] * 2,
    ],
)
def test_extension_is_compiled_again_if_something_may_differ(
    build: Callable[..., str], compiled: list[str], different: list[dict[str, str]]
) -> None:
    for child, arguments in zip("ab", different, strict=True):
        build(child, "x", **arguments)
    assert compiled == ["x", "x"]


def test_extension_that_does_not_compile_is_retried(
    build: Callable[..., str], compiled: list[str], tmp_path: Path
) -> None:
    for child in ("a", "b"):
        with pytest.raises(AssertionError, match="no such text"):
            build(child, "")
    assert compiled == ["", ""]
    assert not list(tmp_path.glob("extension-*"))


def test_script_without_extensions_keeps_the_usual_build(tmp_path: Path) -> None:
    usual = cpp_extension._run_ninja_build
    script = tmp_path / "repro.py"
    script.write_text("import torch")
    with shared_extensions(tmp_path, script):
        assert cpp_extension._run_ninja_build is usual
