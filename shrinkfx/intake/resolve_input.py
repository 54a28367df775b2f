"""Resolve a path that the user passes to a program in the folder of a run."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shrinkfx.check.client.server import Server
from shrinkfx.check.preflight import require_program
from shrinkfx.errors import (
    LoadError,
    NotCuttable,
    NotReproducible,
    UsageError,
)
from shrinkfx.intake.dump import Kind, Script, holds_run, read_dump
from shrinkfx.intake.found import DOES_NOT_FAIL, PROGRAM, ResolvedProgram
from shrinkfx.options.options import Options
from shrinkfx.protocol.answers import Ending, Exported, Settings
from shrinkfx.protocol.choices import Backend, InductorOptions
from shrinkfx.protocol.requests import (
    ExportRunnable,
    ReadSettings,
    Request,
    Task,
)
from shrinkfx.system.folders import INTAKE, lock_folder, output_folder, remove_if_empty
from shrinkfx.system.processes import estimate_available_bytes
from shrinkfx.system.sandbox import Sandbox

CODE = "fx_graph_runnable.py"
"""Name of the copy of a dump's code in the folder ``intake``."""


@contextlib.contextmanager
def resolve_program(
    options: Options,
    add_note: Callable[[str], None],
    require_others: Callable[[], None] = lambda: None,
) -> Iterator[Options]:
    """Yield the options of a run of the program that ``options.model`` stands for.

    Options whose ``model`` is a ``.pt2`` are yielded unchanged. The run takes place
    inside the ``with`` block. This process locks the folder from before the first file
    is written until the end of the block.

    Args:
        add_note: called with sentences about what was read, and what could not be.
        require_others: checks the other requirements of the run before any file is
            written.

    Raises:
        LoadError: the input cannot be read, run or exported.
        UsageError: the input cannot be reduced; or it is code that the user has not
            allowed to run; or another process uses the folder.
    """
    script = read_dump(options.model)
    if script is None:
        yield options
        return
    if script.kind is Kind.RUNNABLE:
        require_consent(script, options)
    require_others()
    out = output_folder(options.out, options.model.resolve())
    try:
        with lock_folder(out):
            resolved = _write_program(script, options, out)
            for sentence in resolved.notes:
                add_note(sentence)
            request = replace(resolved.to_options(options), out=out)
            with _note_if_passing(request):
                yield request
    finally:
        remove_if_empty(out)


@contextlib.contextmanager
def _note_if_passing(request: Options) -> Iterator[None]:
    """Leave a note next to a program that does not fail, because its folder stays."""
    try:
        yield
    except NotCuttable:  # the program does fail
        raise
    except NotReproducible:
        note = request.model.with_name(DOES_NOT_FAIL)
        with contextlib.suppress(OSError):  # the error is reported in any case
            note.write_text(json.dumps({"program": request.called}))
        raise


def _write_program(script: Script, options: Options, out: Path) -> ResolvedProgram:
    """Write the program into a folder without a run; on failure remove its files."""
    if holds_run(out):
        raise UsageError(
            f"--out {out}",
            f" contains a run: shrinkfx --resume {out} resumes it; or choose an empty "
            "folder",
        )
    folder = out / INTAKE
    _require_own(folder)
    try:
        return _load_dump(script, options, folder)
    except BaseException:
        for name in _OUR_FILES:
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise


_OUR_FILES = (PROGRAM, CODE, DOES_NOT_FAIL)
"""Files that this module writes into the folder ``intake``."""


def _require_own(folder: Path) -> None:
    """Raise a UsageError if the folder contains files that shrinkfx did not write."""
    foreign = {path.name for path in folder.glob("*")} - {*_OUR_FILES}
    if foreign:
        raise UsageError(
            f"--out {folder.parent}",
            f": {folder} contains other files ({min(foreign)}): choose an empty folder",
        )


def _load_dump(script: Script, options: Options, folder: Path) -> ResolvedProgram:
    folder.mkdir(exist_ok=True)
    (folder / DOES_NOT_FAIL).unlink(missing_ok=True)
    if script.kind is Kind.RUNNABLE:
        return export_runnable(script, options, folder)
    return take_program(script, options, folder)


# Start a worker without a program, to read Inductor's default settings.


_TIMEOUT_S = 600.0

AskWorker = Callable[[Task], Ending]


@contextlib.contextmanager
def bare_worker(
    options: Options,
    environment: Mapping[str, str],
    preloads: Sequence[str] = (),
    *,
    writable: Sequence[Path] = (),
    readable: Sequence[Path] = (),
) -> Iterator[AskWorker]:
    """Start a worker with the variables of a failing run; yield its ``ask`` function.

    Args:
        writable: the folders that its tasks write to.
        readable: the files and folders that its tasks read.

    Raises:
        LoadError: a preload cannot be read.
        WorkerError: the worker died.
    """
    variables = {**environment, **options.environment}
    sandbox = Sandbox.choose(
        options.sandbox, _note_nothing, writable, (*options.files, *readable)
    )
    with Server(
        preloads=preloads, environment=variables, cwd=options.cwd, sandbox=sandbox
    ) as server:

        def ask(task: Task) -> Ending:
            timeout_s = options.timeout_s or _TIMEOUT_S
            memory = estimate_available_bytes() * 3 // 4
            return server.ask(Request(task, timeout_s=timeout_s, max_rss_bytes=memory))

        yield ask


def _note_nothing(_: str) -> None:
    """Leave it to the run to say that there is no sandbox."""


def find_changed_settings(
    ask: AskWorker, script: Script
) -> tuple[InductorOptions, tuple[str, ...]]:
    """Return a script's settings that differ from the values without the script.

    This is needed because PyTorch dumps each setting that was ever set, even to its
    default.

    Returns:
        The settings of Inductor that differ, and sentences about them and the others.
    """
    wanted = {**script.inductor, **script.others}
    if not wanted:
        return {}, ()
    answer = ask(ReadSettings(wanted)).answer
    if not isinstance(answer, Settings):
        return script.inductor, (_NO_DEFAULTS,)
    values = answer.values
    differ = {
        name: value
        for name, value in wanted.items()
        if name in values and values[name] not in (value, repr(value))
    }
    inductor = {k: v for k, v in differ.items() if k in script.inductor}
    # A graph has already passed through Dynamo.
    others = {
        name: value
        for name, value in differ.items()
        if name in script.others and not name.startswith("torch._dynamo.")
    }
    unknown = sorted(wanted.keys() - values.keys())
    sections = (
        ("with the settings", _listed(inductor)),
        ("omitted settings that are not of Inductor", _listed(others)),
        (
            "omitted settings that this version of PyTorch lacks",
            ", ".join(unknown),
        ),
    )
    return inductor, tuple(f"{title}: {names}" for title, names in sections if names)


_NO_DEFAULTS = "with all of its settings: the worker could not read the defaults"


def _listed(settings: InductorOptions) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


# Load the program of a dump of PyTorch's AOTI minifier.


def take_program(script: Script, options: Options, folder: Path) -> ResolvedProgram:
    """Copy the dump's program into the folder of a run, without executing the script.

    The program is copied because the minifier overwrites the file with each program
    that it tries.

    Raises:
        LoadError: the program does not exist, or is not a ``.pt2``.
    """
    file = locate(script.program, script.path)
    if file is None:
        raise LoadError(
            str(script.path),
            f"loads {script.program}, which does not exist, not even next to the "
            "script",
            f"put {Path(script.program).name} next to {script.path.name}",
        )
    require_program(file)
    program = folder / PROGRAM
    shutil.copyfile(file, program)
    with bare_worker(options, script.environment) as ask:
        inductor, notes = find_changed_settings(ask, script)
    return ResolvedProgram(
        program=program,
        inductor=inductor,
        environment=script.environment,
        notes=(f"{script.path} loads {file}", *script.notes, *notes),
    )


def locate(name: str, script: Path) -> Path | None:
    """Find a file that a script names, also if both were moved.

    If the path no longer exists, its ends are tried next to the script, the longest
    first: ``minifier/checkpoints/x.pt2``, ``checkpoints/x.pt2``, ``x.pt2``.
    """
    if not name:
        return None
    return next((path for path in _places(name, script) if path.exists()), None)


def _places(name: str, script: Path) -> Iterator[Path]:
    parts, is_absolute = Path(name).parts, Path(name).is_absolute()
    if is_absolute:
        yield Path(name)
    for first in range(int(is_absolute), len(parts)):
        yield script.parent.joinpath(*parts[first:])


# Export a graph that torch.compile dumped as code, by running the code in a worker.
#
# This needs the user's consent (``--run-code``). The code is first copied into the
# folder of the run. The copy is what runs, so the user can read it afterwards.


_WORDS = 300


def require_consent(script: Script, options: Options) -> None:
    """Raise unless the user has allowed the code to run.

    Raises:
        UsageError: names the code that would run, and the flag that allows it.
    """
    if options.run_code:
        return
    lines = len(script.text.splitlines())
    raise UsageError(
        f"{script.path} contains a graph that torch.compile dumped as code: exporting "
        f"it runs these {lines} lines of Python, which can do anything Python can; "
        "they run in their own process, under the limits of a check. If you trust the "
        "author of the file, add ",
        "--run-code",
    )


def export_runnable(script: Script, options: Options, folder: Path) -> ResolvedProgram:
    """Run the code in a worker, and export its graph into the folder of the run.

    Raises:
        LoadError: the code cannot be run or exported, or its process dies.
    """
    code, program = folder / CODE, folder / PROGRAM
    data = locate(script.save_dir, script.path)
    save_dir = str(data.resolve()) if data else ""
    text = script.text
    if script.save_dir:  # the copy must find the data although the script was moved
        text = text.replace(repr(script.save_dir), repr(save_dir or None))
    code.write_text(text, encoding="utf-8")
    beside = script.path.resolve().with_suffix(".pt")  # if shrinkfx wrote the script
    constants = beside if beside.is_file() else None
    task = ExportRunnable(
        str(code.resolve()), save_dir, str(constants or ""), str(program.resolve())
    )
    places: dict[str, list[Path]] = {
        "writable": [folder],
        "readable": [path for path in (data, constants) if path],
    }
    with bare_worker(options, script.environment, options.preload, **places) as ask:
        ending = ask(task)
        inductor, notes = find_changed_settings(ask, script)
    if not isinstance(ending.answer, Exported):
        raise LoadError(
            str(script.path),
            f"could not be exported: {_describe_child_end(ending)}",
            _ADVICE,
        )
    return ResolvedProgram(
        program=program,
        inductor=inductor,
        environment=script.environment,
        backend=Backend.AUTO if ending.answer.lacks_gpu else Backend.INDUCTOR,
        notes=(
            *script.notes,
            *notes,
            *_describe_export(ending.answer, script, data, options),
        ),
    )


_ADVICE = (
    "check that the script runs by itself. If it uses custom "
    "operators: --preload MODULE. shrinkfx reduces only programs that torch.export "
    "accepts"
)


def _describe_export(
    result: Exported, script: Script, folder: Path | None, options: Options
) -> Iterator[str]:
    if result.made_up and options.inputs is None:
        why = "the script names no folder with the inputs of the failing run"
        if script.save_dir:
            where = folder or f"{script.save_dir}, nor next to the script"
            why = f"the inputs of the failing run are not in {where}"
        elif options.in_script:
            why = "the script failed before it called the program"
        number = f"{result.made_up} of {result.inputs}"
        yield f"{number} inputs have generated values: {why}"
    if result.fixed:
        yield f"numbers kept as constants: {', '.join(result.fixed)}"
    if result.left_out:
        yield f"omitted {result.left_out} results of the graph that are not tensors"


def _describe_child_end(ending: Ending) -> str:
    """Describe in one line how a child process ended."""
    if raised := ending.raised:
        text = " ".join(raised.message.split())
        return f"{raised.type}: {text:.{_WORDS}}"
    if ending.how == "signal":
        return f"it died of {signal.Signals(ending.code).name}"
    if ending.how == "timeout":
        return f"it did not end within {ending.seconds:.0f} s (--timeout)"
    if ending.how == "memory":
        return "it needs more memory than is free"
    return f"it ended with {ending.how} {ending.code}"
