"""A ``g++`` for scripts that run several times, each in a new interpreter.

Each of these processes must have its own memory layout, but not its own compilation,
because g++ makes the same object from the same text. So the first process compiles
everything; the others take its objects, and link, load and run them. The same holds for
the small libraries by which Inductor tests instruction sets. The script's process is
not changed: this ``g++`` is found in its ``PATH``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from shrinkfx.worker.aoti.object_store import SharedObjects

_COMPILER = "g++"
"""What Inductor calls on Linux if ``CXX`` is not set."""

_WRAPPER = """#!/bin/sh
PATH={path}
case " $* " in
*.cpp" "*" -o "*) exec {ours} g++ "$@" ;;
esac
exec g++ "$@"  # by this name, because Inductor hashes what "g++ -v" prints
"""


def path_with_compiler(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Put this compiler first on the PATH of a script.

    Args:
        folder: the folder of this child, in the server's folder.
        environment: the script's. If it sets a compiler, that one is used.

    Returns:
        Environment variables.
    """
    path = environment.get("PATH", os.defpath)
    if "CXX" in environment or shutil.which(_COMPILER, path=path) is None:
        return {}
    root = str(Path(__file__).resolve().parents[3])
    start = f"import sys; sys.path.insert(0, {root!r}); "
    start += f"from {__name__} import main; main()"
    ours = [sys.executable, "-I", "-S", "-c", start, str(folder)]
    wrapper = folder / "bin" / _COMPILER
    wrapper.parent.mkdir()
    text = _WRAPPER.format(path=shlex.quote(path), ours=shlex.join(ours))
    wrapper.write_text(text)
    wrapper.chmod(0o755)
    return {"PATH": f"{wrapper.parent}{os.pathsep}{path}"}


def main() -> None:
    """Compile, or take what another interpreter has compiled from the same text."""
    folder, *command = sys.argv[1:]
    shared = SharedObjects(Path(folder), "of-interpreters")
    if shared.copy_stored_object(command):
        return
    if code := subprocess.run(command).returncode:
        sys.exit(code)
    shared.store_object(command)
