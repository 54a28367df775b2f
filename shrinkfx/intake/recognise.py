"""Tell a program's path from that of a dump, which PyTorch has left of a failure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from shrinkfx.errors import LoadError, UsageError
from shrinkfx.intake.script import Script, read_script

_TEXTS = (".py", ".txt", ".log")
_MOST_BYTES = 16 << 20
_SHOWN = 8


def recognise(path: Path) -> Script | None:
    """Read what a path leads to that is no ``.pt2``.

    A folder is that of a dump, or the one that ``TORCH_TRACE`` named; a script is one
    that PyTorch's AOTI minifier wrote, or torch.compile; a log is that of
    ``TORCH_TRACE``, with one graph in it.

    Returns:
        None for a file that may be a program, or is not there.

    Raises:
        LoadError: it is a script or folder of others, or cannot be read.
        UsageError: there are several, or a log has none.
    """
    try:
        if path.is_dir():
            return _in_folder(path)
        if path.suffix not in _TEXTS or not path.is_file():
            return None
    except OSError:  # who looks for a program says what is wrong with the path
        return None
    return _in_file(path)


def _in_file(path: Path) -> Script:
    text = _read(path)
    if _LOG.match(text):
        return read_script(path, _in_log(path, text))
    return read_script(path, text)


def is_dump(path: Path) -> bool:
    """Tell whether a folder is one that PyTorch has left, and no run of shrinkfx."""
    return path.is_dir() and not holds_run(path) and bool(_scripts(path))


def _in_folder(folder: Path) -> Script:
    if holds_run(folder):
        raise UsageError(
            f"{folder} is the folder of a run: shrinkfx --resume {folder} resumes it, "
            f"shrinkfx --explain {folder} runs the full root-cause analysis"
        )
    found = _scripts(folder)
    if not found:
        raise LoadError(
            str(folder),
            f"is a folder without a dump from PyTorch ({_LAUNCHER}, repro.py, or a "
            "log of TORCH_TRACE)",
            "pass the path of a .pt2 or of a dump, such as "
            "torch_compile_debug/run_*/minifier",
        )
    if len(found) > 1:
        names = [f"  {path}" for path in found[:_SHOWN]]
        if len(found) > _SHOWN:
            names.append(f"  and {len(found) - _SHOWN} more")
        listed = "\n".join(names)
        what = "logs of TORCH_TRACE" if found[0].suffix == ".log" else "dumps"
        raise UsageError(
            f"{folder} contains {len(found)} {what}: pass one of them:\n{listed}"
        )
    return _in_file(found[0])


def holds_run(folder: Path) -> bool:
    """Tell whether a folder is that of a run of shrinkfx, begun or over."""
    return any((folder / name).exists() for name in ("journal.sqlite", "summary.json"))


_LAUNCHER = "minifier_launcher.py"

_LOGS = "dedicated_log_torch_trace_*.log"
"""``LOG_PREFIX`` of ``torch/_logging/_internal.py``, and what follows it."""

_IN_FOLDER = (
    f"{{}}{_LAUNCHER}",
    f"{{}}minifier/{_LAUNCHER}",
    "{}torchinductor/*/fx_graph_runnable.py",
)
"""Where PyTorch puts them below the folder of a process."""


def _scripts(folder: Path) -> list[Path]:
    """List the dumps in a folder; those of a whole failure before what is left of one.

    ``repro.py`` is the last that a minifier has left, or all there is without one. A
    log of ``TORCH_TRACE`` counts where there is nothing else; each process writes one.
    """
    for above in ("", "run_*/", "torch_compile_debug/run_*/"):
        for pattern in _IN_FOLDER:
            if found := sorted(folder.glob(pattern.format(above))):
                return found
    names = ("repro.py", "fx_graph_runnable.py", "fx_graph_runnable_*.txt")
    found = [path for name in names for path in sorted(folder.glob(name))]
    return found or sorted(folder.glob(_LOGS))


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            reason = f"is larger than {_MOST_BYTES >> 20} MiB"
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
    """Take the one graph out of a log that can be run.

    Raises:
        UsageError: there is none, or there are several.
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
    for found in _TRACED.finditer(text):
        payload = _PAYLOAD.match(text, found.end())
        if payload and f'"name": "{_NAME}"' in found[1]:
            yield re.sub(r"^\t", "", payload[1], flags=re.MULTILINE)
