"""The library: one call from a failing program to a verified repro."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from shrinkfx.check.preflight import require_script
from shrinkfx.errors import NotReproducible, UsageError
from shrinkfx.events import Begun, Doing, Listener, Noted, ignore
from shrinkfx.failure.signature import Kind
from shrinkfx.flags import options_in, require_values
from shrinkfx.intake.capture import door
from shrinkfx.intake.door import take_in, taken_before, with_torch_compile
from shrinkfx.intake.in_memory import Given, written_down
from shrinkfx.intake.notebook import shown
from shrinkfx.options.groups import BudgetOptions
from shrinkfx.options.options import Options, Reduction, Sweeping
from shrinkfx.options.values import kinds_to_keep
from shrinkfx.protocol.choices import ARCHS, Backend, Build, InductorOptions
from shrinkfx.run.explaining import Explained, explain_folder
from shrinkfx.run.folder import JOURNAL, begun, over, resumed
from shrinkfx.run.pipeline import run
from shrinkfx.run.reporting import report_explained, report_folder
from shrinkfx.run.retrieve import Retrieved
from shrinkfx.run.retrieve import retrieve as retrieve_from
from shrinkfx.run.runs import Run, list_runs
from shrinkfx.run.sweep.conclude import Swept
from shrinkfx.run.sweep.pipeline import run_sweep
from shrinkfx.run.verify import Confirmed, confirm
from shrinkfx.validation import (
    require_files,
    require_files_beside,
    require_sense,
    require_sense_of_sweep,
    require_surroundings,
)

__all__ = [
    "Confirmed",
    "Explained",
    "Options",
    "Reduction",
    "Retrieved",
    "Run",
    "Sweeping",
    "Swept",
    "capture",
    "explain",
    "is_capture",
    "minify",
    "recaptured",
    "reduce",
    "reduce_found",
    "report",
    "resume",
    "retrieve",
    "runs",
    "sweep",
    "taken_in",
    "verify",
]

_SHOWN_BY: Mapping[str | None, Mapping[str, str]] = {
    Kind.CHECK_INPUTS: {"AOTI_RUNTIME_CHECK_INPUTS": "1"}
}
"""Variables without which a kind of failure never shows."""


def minify(
    path: str | Path | object,
    *,
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: object = None,
    until: str | None = None,
    match: str = "",
    check: str | None = None,
    inputs: str | Path | None = None,
    preload: Sequence[str | Path] = (),
    run_code: bool = False,
    device: str | None = None,
    backend: str = Backend.AUTO,
    arch: str = ARCHS[0],
    probe: str | None = None,
    all_probes: bool = False,
    inductor: InductorOptions | None = None,
    environment: Mapping[str, str] | None = None,
    build: str = Build.FAST,
    guard_pages: str = "auto",
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
    listener: Listener | None = None,
) -> Reduction:
    """Reduce a program to the smallest that fails in the same way.

    Args:
        path: a ``.pt2`` as ``torch.export.save`` writes it; or a dump: of PyTorch's
            AOTI minifier, or a graph that torch.compile has left as code; or an
            ``ExportedProgram``, or an ``nn.Module``, which is exported as it is.
        args: what a module is exported with; the failing inputs of a program.
        kwargs: the same, by name.
        dynamic_shapes: of a module, as ``torch.export.export`` takes them.
        until: a kind of failure, ``any``, or None for whatever the program shows.
        match: a regular expression that the failure's text must hold.
        check: a command that exits with 0 where the ``.pt2`` at ``{}`` still fails,
            and with 125 where it can't tell; it takes the place of ``until``.
        inputs: the failing inputs, where they differ from those in the ``.pt2``.
        preload: modules, ``.py`` or ``.so`` files that register custom operators.
        run_code: run the code of such a graph, to export it.
        device: where to move the program: ``cpu``, ``cuda`` or ``cuda:1``.
        backend: ``aoti``; ``interpreter`` (CUDA kernels, checked without a GPU); or
            ``auto``, the interpreter for a CUDA program where there is no GPU.
        arch: the GPU that the interpreter's kernels are made for, ``sm_90`` say.
        probe: what the interpreter looks at: ``real``, ``hints``, ``contract`` or
            ``compile``; None means whichever shows the failure.
        all_probes: ask all of these, to know what the others find, though one has
            shown the failure.
        inductor: Inductor options of the failing run.
        environment: environment variables of the failing run; ``until``
            ``check-inputs`` adds the one that has inputs checked.
        build: how the search builds programs for the CPU: ``fast`` compiles once what
            all models share; ``stock`` is AOTInductor's own build, which confirms the
            result in any case.
        guard_pages: ``auto``, ``on`` or ``off``: have tensors of a CPU program lie
            against inaccessible pages; ``auto`` does for ``ima`` and ``crash``.
        timeout_s: seconds per check, without those in which it waits for a busy
            machine; None means ten times the baseline.
        rtol: how far a value may be from eager's, relative to that; None means as far
            as ``torch.testing`` allows for its dtype.
        atol: the same, absolutely.
        strict: strides must be eager's as well, of dims larger than 1.
        baseline_runs: how often the original may run before it is said not to fail;
            None means up to 100 times, and for as long as compiling it took, a minute
            at most.
        max_checks: stop after so many.
        max_minutes: end after so many, with a verified repro.
        max_disk: gigabytes that it may take of ``$TMPDIR``; None means what is free.
        jobs: candidates to ask about at once; None means half the cores, at most 4.
        gpus: numbers of the GPUs that checks are spread over, such as ``("0", "1")``.
        out: folder for the results; None makes ``shrinkfx-out/<model>-<number>``.
        strategies: one name, or several in order; None means all.
        keep: one kind, or several, of what is left as it is once no operator can go:
            ``sizes``, ``values``, ``weights``, ``dtypes``, ``layouts``, ``arguments``,
            ``operands``, ``insides``; or ``all``.
        explain: ask the result for more of its failure's cause: the compiler's
            decisions, and what each flag of the debugging guide says.
        no_explain: ask it nothing about that.
        title: of ``ISSUE.md``; None makes one.
        anonymous: leave names of the model out of ``repro.py`` and ``ISSUE.md``.
        command: how the run was started, for the repro's header.
        listener: told of every check and step (``shrinkfx.events``); without one, a
            notebook shows a bar.

    Raises:
        UsageError: an option makes no sense.
        StrategyError: a strategy is unknown, or no strategy at all.
        LoadError: the program, its inputs or a preload could not be read.
        NotReproducible: the program does not fail as asked.
        Finished: ``out`` holds this very run.
        StorageError: the disk is full; ``resume`` goes on from there.
        WorkerError: the process that holds torch died; ``resume`` goes on from there.
    """
    given = Given(path, args, kwargs, dynamic_shapes)
    names = [preload] if isinstance(preload, (str, Path)) else preload
    chosen = [strategies] if isinstance(strategies, str) else strategies
    options = Options(
        model=given.path() if given.is_path else Path(),
        until=until,
        match=match,
        check=check,
        inputs=Path(inputs) if inputs else None,
        preload=tuple(str(name) for name in names),
        run_code=run_code,
        device=device,
        backend=backend,
        arch=arch,
        probe=probe,
        all_probes=all_probes,
        inductor=dict(inductor or {}),
        environment=dict(environment or {}),
        build=build,
        guard_pages=guard_pages,
        timeout_s=timeout_s,
        rtol=rtol,
        atol=atol,
        strict=strict,
        baseline_runs=baseline_runs,
        max_checks=max_checks,
        max_minutes=max_minutes,
        max_disk=max_disk,
        jobs=jobs,
        gpus=tuple(gpus),
        out=Path(out) if out else None,
        strategies=None if chosen is None else tuple(chosen),
        keep=kinds_to_keep(keep),
        explain=explain,
        no_explain=no_explain,
        title=title,
        anonymous=anonymous,
        command=command,
    )
    with shown(listener) as told:
        return reduce(options, told) if given.is_path else _reduce(given, options, told)


def _reduce(given: Given, options: Options, listener: Listener) -> Reduction:
    """Reduce an object, which a run takes for a file in its own folder."""
    require_surroundings()
    require_sense(options)
    with written_down(given, options) as (asked, found):
        for text in found.said:
            listener(Noted(text))
        return reduce(asked, listener)


def reduce(options: Options, listener: Listener = ignore) -> Reduction:
    """Do what ``minify`` does, with its arguments in one record."""
    require_surroundings()
    require_sense(options)
    if options.inputs and options.inputs.suffix == ".py":
        raise UsageError("--inputs FILE.py is for --dynamic-sweep: name a .pt")
    options = _taken_in(options, listener)
    require_files(options)
    options = _with_what_shows_it(options)
    return _in_its_folder("reduce", _run, options, listener)


def capture(
    options: Options,
    command: Sequence[str],
    listener: Listener = ignore,
    *,
    program: int | None = None,
    stdout: IO[str] | None = None,
) -> Options:
    """Run a failing script, and find the program that fails in it.

    The script runs as it is; each program that it hands to AOTInductor is on disk, in
    ``capture/`` of the run's folder, before it is compiled, loaded or called.

    Args:
        options: those of the run that is to follow; their ``model`` is none.
        command: what is run, word by word.
        program: the number of the program to reduce; None means the one that failed.
        stdout: where the command's output goes, if not where it would have gone.

    Returns:
        What ``reduce`` takes.

    Raises:
        UsageError: there is no such command, or no such program.
        NothingToReduce: the command does not fail, or not in what can be captured.
    """
    require_surroundings()
    words = tuple(command)
    options = replace(options, model=door.name_of(words))
    # Whether a script fails may take long to find out, and inputs come of it.
    require_sense(replace(options, inputs=options.inputs or options.model))
    if options.sweeping:
        require_sense_of_sweep(options)
    with begun(options) as folder:
        listener(Begun("capture", str(options.model), str(folder)))
        options = replace(options, out=folder)
        teller = _teller(listener)
        return door.capture(options, words, program, folder, teller, stdout)


def recaptured(
    options: Options, listener: Listener = ignore, *, program: int | None = None
) -> Options:
    """Find a program that an earlier ``capture`` has left in a folder.

    Args:
        options: ``model`` is that folder.

    Raises:
        UsageError: the folder holds none, or none of that number.
        NothingToReduce: the script did not fail, and none is named.
    """
    return door.recaptured(options, options.model, program, _teller(listener))


def is_capture(path: str | Path) -> bool:
    """Tell whether ``recaptured`` takes a folder."""
    return door.place_of(Path(path)) is not None


def _teller(listener: Listener) -> door.Teller:
    return door.Teller(
        say=lambda text: listener(Noted(text)),
        doing=lambda text: listener(Doing(text)),
    )


def sweep(options: Options, listener: Listener = ignore) -> Swept:
    """Find the sizes at which a program with dynamic shapes fails.

    Args:
        options: ``sweeping`` says how; ``until``, if set, which failures count.
            ``inputs`` may be a ``.py`` that defines ``inputs(**sizes)``.

    Raises:
        UsageError: an option makes no sense, or the program has no free sizes.
        LoadError: the program, its inputs or a preload could not be read.
        NotReproducible: the program does not compile, whatever its sizes.
        Finished: ``out`` holds this very sweep.
        StorageError: the disk is full; ``resume`` goes on from there.
        WorkerError: the process that holds torch died; ``resume`` goes on from there.
    """
    require_surroundings()
    require_sense(options)
    require_sense_of_sweep(options)
    options = _taken_in(options, listener)
    require_files(options)
    options = _with_what_shows_it(options)
    return _in_its_folder("sweep", run_sweep, options, listener)


def taken_in(options: Options, listener: Listener = ignore) -> Options:
    """Ask for the program that a dump holds; for one of a ``.pt2``, what was asked.

    ``reduce`` and ``sweep`` do so themselves: this is for who sweeps a dump and has
    ``reduce_found`` reduce it.

    Raises:
        UsageError: an option makes no sense, or code has no word to be run.
        LoadError: it cannot be read, run or exported.
    """
    require_surroundings()
    require_sense(options)
    if options.sweeping:
        require_sense_of_sweep(options)
    return _taken_in(options, listener)


def _taken_in(options: Options, listener: Listener) -> Options:
    """Make a program of a dump, once all else that may be missing is there."""
    beside = partial(require_files_beside, options)
    return take_in(options, lambda sentence: listener(Noted(sentence)), beside)


def _run(options: Options, folder: Path, listener: Listener) -> Reduction:
    """Run; of a graph of torch.compile's that does not fail, say whether it does there.

    Raises:
        NotReproducible: the program does not fail as asked.
    """
    try:
        return run(options, folder, listener)
    except NotReproducible as error:
        said = with_torch_compile(error, options)
        if said is error:
            raise
        raise said from error


Came = TypeVar("Came", Reduction, Swept)


def _in_its_folder(
    task: str,
    work: Callable[[Options, Path, Listener], Came],
    options: Options,
    listener: Listener,
) -> Came:
    with begun(options) as folder:
        listener(Begun(task, str(options.model), str(folder)))
        return work(options, folder, listener)


def reduce_found(
    options: Options, swept: Swept, listener: Listener = ignore
) -> Reduction:
    """Reduce the failure that a sweep was asked for, at the sizes that it found.

    The result goes into the sweep's folder. Its inputs are as small as the failure
    lets them be, and at the nearest sizes at which the program passes it passes, too.

    Args:
        options: those of the sweep.

    Raises:
        UsageError: the sweep has found nothing to reduce.
        NotReproducible: the program does not fail so outside of the sweep.
        StorageError: the disk is full; ``resume`` goes on from there.
        WorkerError: the process that holds torch died; ``resume`` goes on from there.
    """
    if swept.target is None:
        raise UsageError("the sweep has found nothing to reduce")
    options = replace(options, inputs=swept.target.failing, sweeping=None)
    if swept.target.found.missing_guard:  # where the program was told to look at them
        environment = {**options.environment, **_SHOWN_BY[Kind.CHECK_INPUTS]}
        options = replace(options, environment=environment)
    return run(_with_what_shows_it(options), swept.folder, listener)


def resume(
    folder: str | Path,
    *,
    model: str | Path | None = None,
    max_checks: int | None = None,
    max_minutes: float | None = None,
    max_disk: float | None = None,
    jobs: int | None = None,
    swept: Callable[[Swept], None] | None = None,
    listener: Listener = ignore,
) -> Reduction | Swept:
    """Go on with a run that was killed, stopped or interrupted, at any moment.

    No question is asked again to which there is an answer. All that the run was asked
    for is in its folder; what it has used counts.

    Args:
        folder: what the run was told as ``out``.
        model: where the program is now, if it has been moved.
        max_checks: in all, instead of what the run was told.
        max_minutes: in all, instead of what the run was told.
        max_disk: gigabytes, instead of what the run was told.
        jobs: candidates to ask about at once, instead of what the run was told.
        swept: told of a sweep that is over, before what it has found is reduced.

    Raises:
        Finished: there is nothing left to do.
        BudgetExhausted: it has used up its budget.
        UsageError: there is no run, or something has changed since.
        LoadError: the program, its inputs or a preload is not there any more.
        StorageError: the disk is full, or the journal damaged.
    """
    require_surroundings()
    where = Path(model) if model else Path()
    given = Options(
        where,
        max_checks=max_checks,
        max_minutes=max_minutes,
        max_disk=max_disk,
        jobs=jobs,
    )
    require_values(given)
    options = _captured(Path(folder), given) or resumed(Path(folder), given)
    task = "sweep" if options.sweeping else "reduce"
    listener(Begun(task, str(options.model), str(folder)))
    if not options.sweeping:
        return _run(options, Path(folder), listener)
    over = run_sweep(options, Path(folder), listener)
    if not over.goes_on:
        return over
    if swept:
        swept(over)
    return reduce_found(options, over, listener)


def _captured(folder: Path, given: Options) -> Options | None:
    """Ask for what was captured in a folder where its reduction has not begun."""
    has_begun = os.path.isfile(folder / JOURNAL)
    asked = None if has_begun else door.resumable(folder)
    if asked is None:
        return None
    budget = {option.name for option in options_in(BudgetOptions)}
    anew = {n: v for n, v in vars(given).items() if n in budget and v is not None}
    return _with_what_shows_it(replace(asked, **anew))


def runs(folder: str | Path) -> list[Run]:
    """List the runs in a folder, or the one that it is of, the last one last.

    Nothing is changed there, and no run that is at work is disturbed.

    Raises:
        UsageError: there is no such folder, or it cannot be read.
    """
    return list_runs(Path(folder))


def retrieve(options: Options, digest: str, listener: Listener = ignore) -> Retrieved:
    """Write a candidate that an earlier run has met, by-catch for example.

    Args:
        options: ``out`` is the folder of that run; model, inputs and preloads must
            be the same, settings are taken from it.
        digest: the candidate's, or a unique beginning of it.

    Raises:
        UsageError: there is no such candidate, or the program is another one.
        LoadError: the program, its inputs or a preload could not be read.
    """
    require_surroundings()
    require_sense(options)
    options = _with_what_shows_it(options)
    if not digest:
        raise UsageError("--candidate names none: summary.json lists the by-catch")
    if options.check is not None:
        raise UsageError("--candidate runs AOTInductor: leave --check out")
    if options.out is None:
        raise UsageError(f"--candidate {digest} needs --out DIR: the folder of the run")
    folder, options = options.out, taken_before(options)
    require_files(options)
    listener(Begun("candidate", str(options.model), str(folder)))
    return retrieve_from(options, digest, folder, listener)


def explain(
    folder: str | Path, listener: Listener = ignore, *, title: str | None = None
) -> Explained:
    """Find out what the failure comes from that a run has reduced.

    Asks the result which decisions of the compiler its failure needs, and what each
    flag of PyTorch's debugging guide says of it; ``explain.json`` holds what is known,
    and the header of ``repro.py`` the cause.

    Args:
        folder: of a run that is over.
        title: of ``ISSUE.md``, instead of what the run was told.

    Raises:
        UsageError: no result is there, or something has changed since.
        LoadError: the program, its inputs or a preload is not there any more.
        WorkerError: the process that holds torch died.
    """
    require_surroundings()
    options = over(Path(folder))
    options = replace(options, title=title or options.title)
    listener(Begun("explain", str(options.model), str(folder)))
    explained = explain_folder(options, Path(folder), listener)
    report_explained(Path(folder), listener)
    return explained


def report(folder: str | Path, listener: Listener = ignore) -> Path:
    """Write ``report.html`` of a run anew: the run, as a page for a browser.

    Each run writes it at its end. Where an earlier version of shrinkfx has made the
    run, the program is read anew for its graph, if it is still there.

    Args:
        folder: what the run was told as ``out``.

    Returns:
        The page.

    Raises:
        UsageError: no run is there, or another process is at work there.
        StorageError: the page cannot be written.
    """
    require_surroundings()
    listener(Begun("report", "", str(folder)))
    return report_folder(Path(folder), listener)


def verify(
    options: Options, listener: Listener = ignore, *, across: Sequence[str] = ()
) -> Confirmed:
    """Run a repro as a stranger would: does it fail as its header states?

    Args:
        options: ``model`` is the script; back end, arch and time limit count.
        across: other interpreters, with other versions of PyTorch, to run it as well.

    Raises:
        UsageError: it is no script, or only a command of its maker's can judge it; or
            an interpreter is none.
        LoadError: it cannot be read.
        WorkerError: the process that holds torch died.
    """
    require_surroundings()
    require_sense(options)
    require_script(options.model)
    listener(Begun("verify", str(options.model)))
    return confirm(options, listener, across)


def _with_what_shows_it(options: Options) -> Options:
    variables = _SHOWN_BY.get(options.until, {})
    return replace(options, environment={**variables, **options.environment})
