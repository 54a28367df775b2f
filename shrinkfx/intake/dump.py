"""Read a script that PyTorch dumped of a failure, without running it.

    os.environ['TORCHINDUCTOR_MAX_AUTOTUNE'] = '1'     a variable of the failing run
    torch._inductor.config.freezing = True             a setting of Inductor
    exported_program = torch.export.load('/a/b.pt2')   AOTI minifier: a program
    class Repro(torch.nn.Module): ...                  torch.compile: a module and
    def load_args(reader): ...                         its arguments
    run_repro(..., accuracy=True, save_dir='/a')       what the script looks for

Except for the module, all values are literals, so ``ast`` is sufficient. ``aoti.py``,
``after_aot.py`` and ``after_dynamo.py`` in ``torch/_dynamo/repro`` write these scripts.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from shrinkfx.errors import LoadError, UsageError
from shrinkfx.failure.readers.script import is_repro
from shrinkfx.intake.found import is_setting, is_variable, names_programs
from shrinkfx.protocol.choices import InductorOptions


class Kind(StrEnum):
    """The tool that wrote a script."""

    MINIFIER = "minifier"
    """PyTorch's AOTI minifier: the script loads a ``.pt2``."""
    RUNNABLE = "runnable"
    """torch.compile: the script contains the module as code."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """The literals of a script.

    Attributes:
        path: the script's path; for a graph in a log, the log's path.
        text: the text of the script.
        program: the path that it loads, or ''.
        inductor: settings of Inductor that it sets, even if to the default.
        others: settings of other parts of PyTorch, by their full names.
        environment: environment variables that the failure may need.
        save_dir: the folder with the values of the arguments, or ''.
        notes: sentences about the other contents.
    """

    path: Path
    kind: Kind
    text: str
    program: str
    inductor: InductorOptions
    others: InductorOptions
    environment: Mapping[str, str]
    save_dir: str
    notes: tuple[str, ...]


def read_script(path: Path, text: str) -> Script:
    """Read a script that PyTorch dumped.

    Raises:
        LoadError: the script is not a dump, or is a repro of shrinkfx.
    """
    if is_repro(text):
        problem = "is a repro that shrinkfx wrote"
        raise LoadError(str(path), problem, f"to run it: shrinkfx {path.name} --verify")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = f"is not valid Python: {error}"
        raise LoadError(str(path), reason, _KNOWN) from error
    settings = _Settings.of(tree)
    kind, program = _kind(tree), _program(tree)
    if kind is None:
        raise LoadError(str(path), _NO_DUMP, _to_run(path))
    call = _keywords(tree, "run_repro")
    written_by = re.findall(r"^# torch version: (\S+)$", text, re.MULTILINE)
    return Script(
        path=path,
        kind=kind,
        text=text,
        program=program,
        inductor=settings.inductor,
        others=settings.others,
        environment=settings.environment,
        save_dir=str(call.get("save_dir") or ""),
        notes=(
            *describe_other_torch(written_by),
            *settings.describe_settings(),
            *_describe_call(call),
        ),
    )


_NO_DUMP = "is a Python file, but not a dump from PyTorch"


def _to_run(path: Path) -> str:
    """Return advice for a script that the user wrote."""
    program = "pytest" if path.name.startswith("test_") else "python"
    command = f"shrinkfx --capture {program} {shlex.quote(str(path))}"
    return f"to run it and reduce the program that fails in it: {command}\n{_KNOWN}"


_KNOWN = (
    "shrinkfx reduces a .pt2 from torch.export.save, and minifier_launcher.py, "
    "repro.py and fx_graph_runnable files from PyTorch"
)


def _kind(tree: ast.Module) -> Kind | None:
    if _program(tree):
        return Kind.MINIFIER
    names = {
        node.name
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    return Kind.RUNNABLE if {"Repro", "load_args"} <= names else None


def _program(tree: ast.Module) -> str:
    """Find the path in ``exported_program = torch.export.load('...')``."""
    for target, value in _assigned(tree):
        if target == "exported_program" and isinstance(value, ast.Call):
            if ast.unparse(value.func) != "torch.export.load" or not value.args:
                continue
            path = _literal(value.args[0])
            return path if isinstance(path, str) else ""
    return ""


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield each assignment's target and value.

    Since torch 2.15, a dump sets some options by ``CONFIG.load_config({...})``.
    """
    for node in tree.body:
        match node:
            case ast.Assign(targets=[target], value=value):
                yield ast.unparse(target), value
            case ast.Expr(
                ast.Call(
                    func=ast.Attribute(value=config, attr="load_config"),
                    args=[ast.Dict(keys=names, values=values)],
                )
            ):
                for name, value in zip(names, values, strict=True):
                    if name and isinstance(option := _literal(name), str):
                        yield f"{ast.unparse(config)}.{option}", value


@dataclass(frozen=True)
class _Settings:
    """Settings and variables that a script sets.

    Attributes:
        unread: settings whose values are not literals.
        refused: settings that name programs to run.
    """

    inductor: dict[str, object]
    others: dict[str, object]
    environment: dict[str, str]
    unread: list[str]
    refused: list[str]

    @classmethod
    def of(cls, tree: ast.Module) -> _Settings:
        settings = cls({}, {}, {}, [], [])
        for target, value in _assigned(tree):
            settings._take(target, value)
        return settings

    def _take(self, target: str, value: ast.expr) -> None:
        literal = _literal(value)
        if variable := re.fullmatch(r"os\.environ\[(?:'|\")(\w+)(?:'|\")\]", target):
            if isinstance(literal, str) and is_variable(variable[1], literal):
                self.environment[variable[1]] = literal
        elif target == "config_patches":
            if isinstance(literal, dict):
                for name, patched in literal.items():
                    self._set(self.inductor, str(name), patched)
            elif literal is not None:
                self.unread.append(target)
        elif target.startswith(_INDUCTOR):
            self._set(self.inductor, target.removeprefix(_INDUCTOR), literal)
        elif _CONFIG.match(target):
            self._set(self.others, target, literal)

    def _set(self, settings: dict[str, object], name: str, value: object) -> None:
        if not is_setting(name):
            return
        if names_programs(name):
            self.refused.append(name)
            return
        if value is not _NO_LITERAL and _fits_json(value):
            settings[name] = value
        else:
            self.unread.append(name)

    def describe_settings(self) -> Iterator[str]:
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        if variables:
            yield f"with the variables: {', '.join(variables)}"
        if self.unread:
            yield (
                "omitted, because their values are not literals: "
                f"{', '.join(self.unread)}"
            )
        if self.refused:
            names = ", ".join(self.refused)
            yield f"omitted, because they name programs to run: {names}"


_INDUCTOR = "torch._inductor.config."
_CONFIG = re.compile(r"torch\.[\w.]*config\.\w+$")


def _keywords(tree: ast.Module, function: str) -> dict[str, object]:
    """Return the literal keyword arguments of the last call of a function."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == function
    ]
    keywords = calls[-1].keywords if calls else []
    read = {word.arg: _literal(word.value) for word in keywords if word.arg}
    return {name: value for name, value in read.items() if value is not _NO_LITERAL}


def describe_other_torch(versions: Sequence[str]) -> list[str]:
    """Name the version of torch that wrote a program, unless it is the installed one.

    Args:
        versions: those of torch that ran when the program was written.
    """
    try:
        here = version("torch")
    except PackageNotFoundError:  # built from source
        return []
    # The metadata of PyPI's builds lack the local part, such as +cu132.
    others = [v for v in versions if here not in (v, v.partition("+")[0])]
    return [_OTHER_TORCH.format(other, here) for other in others[:1]]


_OTHER_TORCH = "torch {} wrote the program, and torch {} is used to reduce it"


def _describe_call(call: Mapping[str, object]) -> Iterator[str]:
    """Yield sentences about what the script's own ``__main__`` looks for."""
    if call.get("accuracy"):
        yield (
            "the script was written for wrong values: --until mismatch looks only for "
            "these"
        )
    if isinstance(text := call.get("check_str"), str):
        yield f"the script looks for {text!r}: --match does the same"


_NO_LITERAL = object()


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return _NO_LITERAL


def _fits_json(value: object) -> bool:
    """Return whether a value survives the conversion to JSON and back."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


# Recognize dumps that PyTorch wrote of a failure.


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
