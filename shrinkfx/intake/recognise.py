"""Recognize dumps that PyTorch wrote of a failure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from shrinkfx.errors import LoadError, UsageError
from shrinkfx.intake.script import Script, read_script

_TEXTS = (".py", ".txt", ".log")
_MAX_BYTES = 16 << 20
_MAX_LISTED = 8


def read_dump(path: Path) -> Script | None:
    """Read the dump at a path; return None if the path may be a ``.pt2``.

    A folder is one with a dump, or the folder that ``TORCH_TRACE`` names. A script is
    one that PyTorch's AOTI minifier or torch.compile wrote. A log is one of
    ``TORCH_TRACE`` with one graph.

    Returns:
        None for a file that may be a program, or that does not exist.

    Raises:
        LoadError: the script or folder is not a dump, or cannot be read.
        UsageError: a folder or log contains several dumps, or a log contains none.
    """
    try:
        if path.is_dir():
            return _in_folder(path)
        if path.suffix not in _TEXTS or not path.is_file():
            return None
    except OSError:  # loading the program reports what is wrong with the path
        return None
    return _in_file(path)


def _in_file(path: Path) -> Script:
    text = _read(path)
    if _LOG.match(text):
        return read_script(path, _in_log(path, text))
    return read_script(path, text)


def is_dump(path: Path) -> bool:
    """Return whether a folder contains a dump from PyTorch, and no run of shrinkfx."""
    return path.is_dir() and not holds_run(path) and bool(_scripts(path))


def _in_folder(folder: Path) -> Script:
    if holds_run(folder):
        raise UsageError(
            f"{folder} is the folder of a run: shrinkfx --resume {folder} resumes it, "
            f"shrinkfx --explain {folder} runs the full root-cause analysis"
        )
    dumps = _scripts(folder)
    if not dumps:
        raise LoadError(
            str(folder),
            f"is a folder without a dump from PyTorch ({_LAUNCHER}, repro.py, or a "
            "log of TORCH_TRACE)",
            "pass the path of a .pt2 or of a dump, such as "
            "torch_compile_debug/run_*/minifier",
        )
    if len(dumps) > 1:
        names = [f"  {path}" for path in dumps[:_MAX_LISTED]]
        if len(dumps) > _MAX_LISTED:
            names.append(f"  and {len(dumps) - _MAX_LISTED} more")
        listed = "\n".join(names)
        what = "logs of TORCH_TRACE" if dumps[0].suffix == ".log" else "dumps"
        raise UsageError(
            f"{folder} contains {len(dumps)} {what}: pass one of them:\n{listed}"
        )
    return _in_file(dumps[0])


def holds_run(folder: Path) -> bool:
    """Return whether a folder contains a run of shrinkfx, finished or not."""
    return any((folder / name).exists() for name in ("journal.sqlite", "summary.json"))


_LAUNCHER = "minifier_launcher.py"

_LOGS = "dedicated_log_torch_trace_*.log"
"""``LOG_PREFIX`` of ``torch/_logging/_internal.py``, and the rest of the file name."""

_IN_FOLDER = (
    f"{{}}{_LAUNCHER}",
    f"{{}}minifier/{_LAUNCHER}",
    "{}torchinductor/*/fx_graph_runnable.py",
)
"""Paths of the dumps below the folder of a process."""


def _scripts(folder: Path) -> list[Path]:
    """List the dumps in a folder; dumps of a complete failure take precedence.

    ``repro.py`` is the last script of a minifier, or the only one without a minifier. A
    log of ``TORCH_TRACE`` counts only if there is nothing else; each process writes
    one.
    """
    for above in ("", "run_*/", "torch_compile_debug/run_*/"):
        for pattern in _IN_FOLDER:
            if dumps := sorted(folder.glob(pattern.format(above))):
                return dumps
    names = ("repro.py", "fx_graph_runnable.py", "fx_graph_runnable_*.txt")
    dumps = [path for name in names for path in sorted(folder.glob(name))]
    return dumps or sorted(folder.glob(_LOGS))


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            reason = f"is larger than {_MAX_BYTES >> 20} MiB"
            raise LoadError(str(path), reason, "check that PyTorch wrote this file")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(str(path), f"cannot be read: {error}") from error


# --- the log of TORCH_TRACE: glog's prefix, JSON, then the payload behind tabs

_LOG = re.compile(r"[VIWE]\d{4} [\d:.]+ \d+ \S+:\d+\] ")
_TRACED = re.compile(r"^V\d{4} .*?\] (\{.*\"has_payload\": .*\})$", re.MULTILINE)
_PAYLOAD = re.compile(r"\n((?:\t.*(?:\n|$))+)")
_NAME = "fx_graph_runnable"


def _in_log(path: Path, text: str) -> str:
    """Return the only runnable graph of a log.

    Raises:
        UsageError: the log has no such graph, or several.
    """
    graphs = [*dict.fromkeys(_payloads(text))]
    if len(graphs) != 1:
        raise UsageError(
            f"{path} is a log of TORCH_TRACE with {len(graphs)} runnable graphs "
            f"({_NAME}), and shrinkfx reduces one: tlparse {path} writes each graph "
            "to a file: pass one of these"
        )
    return graphs[0]


def _payloads(text: str) -> Iterator[str]:
    for match in _TRACED.finditer(text):
        payload = _PAYLOAD.match(text, match.end())
        if payload and f'"name": "{_NAME}"' in match[1]:
            yield re.sub(r"^\t", "", payload[1], flags=re.MULTILINE)
