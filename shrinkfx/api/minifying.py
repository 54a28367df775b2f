"""``minify()``: reduce a program from a file or from memory, with keyword options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from shrinkfx.api.keyword_errors import api_function
from shrinkfx.api.reducing import reduce
from shrinkfx.api.validation import require_environment, require_valid_options
from shrinkfx.events import Listener, NoteAdded
from shrinkfx.flags import list_record_options
from shrinkfx.intake.in_memory import ObjectInput, save_object
from shrinkfx.options.options import Options
from shrinkfx.options.values import parse_kept_kinds
from shrinkfx.progress.shown import print_outcome, show_progress
from shrinkfx.protocol.choices import ARCHS, Backend, Build, InductorOptions
from shrinkfx.run.folder import Reduction


@api_function
def minify(
    path: str | Path | object,
    *,
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: object = None,
    until: str | None = None,
    strict_kind: bool = False,
    match: str = "",
    check: str | None = None,
    inputs: str | Path | None = None,
    preload: Sequence[str | Path] = (),
    run_code: bool = False,
    sandbox: str = "off",
    device: str | None = None,
    backend: str = Backend.AUTO,
    arch: str = ARCHS[0],
    probe: str | None = None,
    all_probes: bool = False,
    inductor: InductorOptions | None = None,
    environment: Mapping[str, str] | None = None,
    build: str = Build.FAST,
    guard_pages: str = "auto",
    sanitizer: str | None = None,
    cuda_coredump: bool = False,
    timeout_s: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    strict: bool = False,
    baseline_runs: int | None = None,
    max_checks: int | None = None,
    max_minutes: float | None = None,
    max_disk: float | None = None,
    jobs: int | None = None,
    gpus: Sequence[str] = (),
    out: str | Path | None = None,
    strategies: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    explain: bool = False,
    no_explain: bool = False,
    title: str | None = None,
    anonymous: bool = False,
    command: str = "",
    quiet: bool = False,
    listener: Listener | None = None,
) -> Reduction:
    """Reduce a failing program to a small one that fails in the same way.

    The run writes the small program as ``repro.py``, and verifies that this script
    fails.

    Args:
        path: the failing program: the path of a ``.pt2`` from ``torch.export.save``;
            the path of a dump, from PyTorch's AOTI minifier or of a torch.compile graph
            saved as Python; an ``ExportedProgram``; or an ``nn.Module``, which shrinkfx
            exports with ``args``, ``kwargs`` and ``dynamic_shapes``.
        args: positional arguments for the export of a module; for an
            ``ExportedProgram``, the failing inputs.
        kwargs: keyword arguments, likewise.
        dynamic_shapes: dynamic shapes of a module, as for ``torch.export.export``.
        until: kind of failure to reduce, such as ``assert`` or ``mismatch``; ``any``;
            or None for the failure that the program shows.
        strict_kind: stop if the program raises an error of another kind than ``until``,
            instead of reducing that error.
        match: accept only failures whose message matches this regular expression.
        check: shell command that tests candidates in place of AOTInductor: ``{}`` is
            the path of a candidate's ``.pt2``; exit code 0 means that the candidate
            still fails, 125 that the command cannot tell. It replaces ``until``.
        inputs: file with the failing inputs, if they differ from those in the ``.pt2``:
            a tuple saved with ``torch.save``, or a dict with ``args`` and ``kwargs``.
        preload: modules, ``.py`` or ``.so`` files that register custom operators.
        run_code: allow shrinkfx to execute Python code that a dump or a source archive
            stores as its program; such a file is refused otherwise.
        sandbox: ``on`` runs the program, and all that loads or compiles it, in a
            sandbox of bubblewrap; ``auto``, only where bubblewrap works; or ``off``.
        device: device to move the program to: ``cpu``, ``cuda`` or ``cuda:1``.
        backend: ``aoti``; ``interpreter``, which checks CUDA kernels without a GPU; or
            ``auto``, the interpreter for a CUDA program if there is no GPU.
        arch: GPU architecture of the interpreter's kernels, such as ``sm_90``.
        probe: what the interpreter runs: ``real`` (the kernels on the failing inputs),
            ``hints`` (on AOTInductor's benchmark inputs), ``contract`` (declared sizes
            and strides), ``compile`` (only compilation), or None for the first probe
            that shows the failure.
        all_probes: run all probes, even after one has shown the failure.
        inductor: Inductor options of the failing run, by name.
        environment: environment variables of the failing run. ``until="check-inputs"``
            adds ``AOTI_RUNTIME_CHECK_INPUTS=1``.
        build: how candidates for the CPU are built: ``fast`` reuses a precompiled
            runtime for all candidates, and confirms the result with a normal
            AOTInductor build; ``stock`` always uses the normal build.
        guard_pages: ``on`` places an inaccessible page next to each tensor, so that
            out-of-bounds accesses fault; ``off``; or ``auto``, which does so for
            ``until="ima"`` and ``"crash"``.
        sanitizer: tool of compute-sanitizer under which every check on a GPU runs:
            ``memcheck``, ``initcheck`` or ``racecheck``; None for no tool.
        cuda_coredump: write a CUDA core dump of the reduced program's fault.
        timeout_s: time limit of a check in seconds, without the time that it waits for
            a busy machine; None means ten times the input program's time, 1 to 10
            minutes.
        rtol: relative tolerance for comparing values with eager; None means that of
            ``torch.testing`` for the dtype.
        atol: absolute tolerance, likewise.
        strict: also require the same strides as in eager, for dims larger than 1.
        baseline_runs: how often to run the input program before concluding that it
            does not fail; None means up to 100 runs, for as long as its compilation
            took, at least 6 s and at most 1 minute.
        max_checks: stop after this number of checks.
        max_minutes: total time limit in minutes, with a verified repro at the end.
        max_disk: disk space in GB that the run may use in ``$TMPDIR``; None means the
            free space.
        jobs: number of candidates to check in parallel; None means half the cores, at
            most 4, or fewer if memory is short.
        gpus: numbers of the GPUs to distribute the checks over, such as ``("0", "1")``.
        out: folder for the results; None means ``shrinkfx-out/<model>-<number>``.
        strategies: name of a strategy, or several names in order; None means all.
        keep: kinds of parts not to simplify in the reduced program: ``sizes``,
            ``values``, ``weights``, ``dtypes``, ``layouts``, ``arguments``,
            ``operands``, ``insides``; or ``all``.
        explain: run the full root-cause analysis: which compiler decisions the failure
            needs, and what each flag of PyTorch's debugging guide reports.
        no_explain: skip the root-cause analysis.
        title: title of ``ISSUE.md``; None means one made of the operators and the
            failure.
        anonymous: replace the model's names in ``repro.py``, ``ISSUE.md`` and
            ``report.html``, and omit source locations.
        command: the command that the header of the repro shows.
        quiet: show no progress and no result. By default, a notebook shows a progress
            bar. Elsewhere stderr shows the output of the command line: a live line, or
            plain lines if stderr is not a terminal, and the result at the end.
        listener: called with each event (``shrinkfx.events``), in place of that output.

    Returns:
        The result: status, paths of the repro and the reports, cause, and counts.

    Raises:
        UsageError: an option or an argument is invalid.
        StrategyError: a strategy is unknown or invalid.
        LoadError: the program, its inputs or a preload cannot be read.
        NotReproducible: the program does not fail as requested.
        Finished: ``out`` contains this run, already finished.
        StorageError: a file cannot be written, for example because the disk is full;
            ``shrinkfx.api.resume`` continues the run.
        WorkerError: the worker, the process that imports torch, died;
            ``shrinkfx.api.resume`` continues the run.
    """
    keywords = locals()  # each option has the name of its keyword
    source = ObjectInput(path, args, kwargs, dynamic_shapes)
    names = [preload] if isinstance(preload, (str, Path)) else preload
    chosen = [strategies] if isinstance(strategies, str) else strategies
    converted = {
        "inputs": Path(inputs) if inputs else None,
        "preload": tuple(str(name) for name in names),
        "inductor": dict(inductor or {}),
        "environment": dict(environment or {}),
        "gpus": tuple(gpus),
        "out": Path(out) if out else None,
        "strategies": None if chosen is None else tuple(chosen),
        "keep": parse_kept_kinds(keep),
    }
    unchanged = {
        each.name: keywords[each.name] for each in list_record_options(Options)
    }
    options = Options(
        source.path() if source.is_path else Path(),
        command=command,
        **{**unchanged, **converted},
    )
    try:
        with show_progress(listener, quiet=quiet) as shown:
            work = reduce if source.is_path else partial(_reduce_object, source)
            reduction = work(options, shown)
    except KeyboardInterrupt as error:
        # The traceback is internal; without it, the note on how to resume is visible.
        raise error.with_traceback(None) from None
    if listener is None and not quiet:
        print_outcome(str(reduction))
    return reduction


def _reduce_object(
    source: ObjectInput, options: Options, listener: Listener
) -> Reduction:
    """Save an object from memory in the folder of its run, and reduce that file."""
    require_environment()
    require_valid_options(options)
    with save_object(source, options) as (saved, found):
        for text in found.notes:
            listener(NoteAdded(text))
        return reduce(saved, listener)
