"""The zygote: an early fork of a server, which becomes another server.

    server   imports torch --+-- preloads, program, requests
                             |
    zygote                   +-- waits --> requests to a server without these

A server that needs neither the preloads nor the program then need not import torch. The
zygote is no descendant of the server, which kills its descendants after each child. It
ends when its connection closes, and is found by the server's mark.
"""

from __future__ import annotations

import os
import site
import sys
from dataclasses import replace
from pathlib import Path

from shrinkfx.protocol.requests import Growth, Setup
from shrinkfx.worker.forkserver.serve import Line, open_connection
from shrinkfx.worker.forkserver.supervise import become_subreaper

_NONE = 0


def fork_zygote(setup: Setup, line: Line) -> tuple[Setup, Line, int]:
    """Fork a zygote if the setup asks for one; return in it when it becomes a server.

    Returns:
        The setup to load, the connection to serve, and the zygote's process id or 0.
    """
    if setup.zygote is None:
        return setup, line, _NONE
    orders, answers = setup.zygote
    zygote_pid = _fork_detached() if has_no_local_modules() else _NONE
    if zygote_pid is None:
        line.close()
        os.dup2(orders, 0)
        os.dup2(answers, 1)
    os.close(orders)
    os.close(answers)
    if zygote_pid is None:
        return *_wait_for_setup(), _NONE
    return replace(setup, zygote=None), line, zygote_pid


def _fork_detached() -> int | None:
    """Fork a process that is no descendant; return None in it, or 0 if that fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    read_end, write_end = os.pipe()
    become_subreaper(0)
    try:
        if (intermediate := os.fork()) == 0:
            _report_zygote(read_end, write_end)
            return None
        os.waitpid(intermediate, 0)
    except OSError as error:
        print(f"no zygote: {error}", file=sys.stderr)
    finally:
        become_subreaper()
        os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        return int(pipe.read() or _NONE)


def _report_zygote(read_end: int, write_end: int) -> None:
    """Fork the zygote, return in it, write its process id to a pipe, and exit."""
    try:
        os.setsid()
        if (zygote_pid := os.fork()) == 0:
            os.close(read_end)
            return
        os.write(write_end, b"%d" % zygote_pid)
    except OSError as error:
        print(f"no zygote: {error}", file=sys.stderr)
    os._exit(0)


def has_no_local_modules() -> bool:
    """Return whether this process has imported no module from its current folder.

    Another server's folder may have other modules of the same names. The user's own
    site-packages count as such a folder, too.
    """
    if site.ENABLE_USER_SITE and site.getusersitepackages() in sys.path:
        return False
    here, *others = sys.path
    modules = (m for n, m in [*sys.modules.items()] if "." not in n and n != "__main__")
    return here in others or not any(_is_in_folder(here, module) for module in modules)


def _is_in_folder(folder: str, module: object) -> bool:
    known = getattr(module, "__dict__", {})  # some modules invent attributes
    files = known.get("__path__") or [known.get("__file__")]
    return any(os.path.dirname(str(file)) == folder for file in files)


def _wait_for_setup() -> tuple[Setup, Line]:
    """Wait in the zygote for a setup; exit if the connection closes."""
    with os.fdopen(0, "rb", buffering=0, closefd=False) as stdin:
        growth, line = stdin.readline(), stdin.readline()
    if not line.endswith(b"\n"):
        os._exit(0)
    _apply_growth(Growth.from_line(growth))
    setup = Setup.from_line(line)
    return setup, open_connection(Path(setup.directory) / "server.log")


def _apply_growth(growth: Growth) -> None:
    """Set the environment, the current folder, and the first folder of ``sys.path``."""
    for name, value in growth.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.chdir(growth.cwd)
    sys.path[0] = growth.cwd
