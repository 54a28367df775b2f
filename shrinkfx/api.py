"""The library: one call from a failing program to a verified repro."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from shrinkfx.check.preflight import require_script
from shrinkfx.errors import UsageError
from shrinkfx.events import Begun, Listener, ignore
from shrinkfx.failure.signature import Kind
from shrinkfx.flags import require_values
from shrinkfx.options.options import Options, Reduction, Sweeping
from shrinkfx.options.values import kinds_to_keep
from shrinkfx.protocol.choices import ARCHS, Backend, Build, InductorOptions
from shrinkfx.run.explaining import Explained, explain_folder
from shrinkfx.run.folder import begun, over, resumed
from shrinkfx.run.pipeline import run
from shrinkfx.run.retrieve import Retrieved
from shrinkfx.run.retrieve import retrieve as retrieve_from
from shrinkfx.run.sweep.conclude import Swept
from shrinkfx.run.sweep.pipeline import run_sweep
from shrinkfx.run.verify import Confirmed, confirm
from shrinkfx.validation import (
    require_files,
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
    "Sweeping",
    "Swept",
    "explain",
    "minify",
    "reduce",
    "reduce_found",
    "resume",
    "retrieve",
    "sweep",
    "verify",
]

_SHOWN_BY: Mapping[str | None, Mapping[str, str]] = {
    Kind.CHECK_INPUTS: {"AOTI_RUNTIME_CHECK_INPUTS": "1"}
}
"""Variables without which a kind of failure never shows."""


def minify(
    path: str | Path,
    *,
    until: str | None = None,
    match: str = "",
    check: str | None = None,
    inputs: str | Path | None = None,
    preload: Sequence[str | Path] = (),
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
    out: str | Path | None = None,
    strategies: Sequence[str] | None = None,
    keep: Sequence[str] = (),
    explain: bool = False,
    no_explain: bool = False,
    command: str = "",
    listener: Listener = ignore,
) -> Reduction:
    """Reduce the program in ``path`` to the smallest that fails in the same way.

    Args:
        path: a ``.pt2`` as ``torch.export.save`` writes it.
        until: a kind of failure, ``any``, or None for whatever the program shows.
        match: a regular expression that the failure's text must hold.
        check: a command that exits with 0 where the ``.pt2`` at ``{}`` still fails,
            and with 125 where it can't tell; it takes the place of ``until``.
        inputs: the failing inputs, where they differ from those in the ``.pt2``.
        preload: modules, ``.py`` or ``.so`` files that register custom operators.
        device: where to move the program: ``cpu`` or ``cuda``.
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
        out: folder for the results; None makes ``shrinkfx-out/<model>-<number>``.
        strategies: one name, or several in order; None means all.
        keep: one kind, or several, of what is left as it is once no operator can go:
            ``sizes``, ``values``, ``weights``, ``dtypes``, ``layouts``, ``arguments``,
            ``operands``, ``insides``; or ``all``.
        explain: ask the result for more of its failure's cause: the compiler's
            decisions, and what each flag of the debugging guide says.
        no_explain: ask it nothing about that.
        command: how the run was started, for the repro's header.
        listener: told of every check and step (``shrinkfx.events``).

    Raises:
        UsageError: an option makes no sense.
        StrategyError: a strategy is unknown, or no strategy at all.
        LoadError: the program, its inputs or a preload could not be read.
        NotReproducible: the program does not fail as asked.
        Finished: ``out`` holds this very run.
        StorageError: the disk is full; ``resume`` goes on from there.
        WorkerError: the process that holds torch died; ``resume`` goes on from there.
    """
    names = [preload] if isinstance(preload, (str, Path)) else preload
    chosen = [strategies] if isinstance(strategies, str) else strategies
    options = Options(
        model=Path(path),
        until=until,
        match=match,
        check=check,
        inputs=Path(inputs) if inputs else None,
        preload=tuple(str(name) for name in names),
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
        out=Path(out) if out else None,
        strategies=None if chosen is None else tuple(chosen),
        keep=kinds_to_keep(keep),
        explain=explain,
        no_explain=no_explain,
        command=command,
    )
    return reduce(options, listener)


def reduce(options: Options, listener: Listener = ignore) -> Reduction:
    """Do what ``minify`` does, with its arguments in one record."""
    require_surroundings()
    require_sense(options)
    if options.inputs and options.inputs.suffix == ".py":
        raise UsageError("--inputs FILE.py is for --dynamic-sweep: name a .pt")
    require_files(options)
    options = _with_what_shows_it(options)
    return _in_its_folder("reduce", run, options, listener)


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
    require_files(options)
    options = _with_what_shows_it(options)
    return _in_its_folder("sweep", run_sweep, options, listener)


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
    options = resumed(Path(folder), given)
    task = "sweep" if options.sweeping else "reduce"
    listener(Begun(task, str(options.model), str(folder)))
    if not options.sweeping:
        return run(options, Path(folder), listener)
    over = run_sweep(options, Path(folder), listener)
    if not over.goes_on:
        return over
    if swept:
        swept(over)
    return reduce_found(options, over, listener)


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
    require_files(options)
    listener(Begun("candidate", str(options.model), str(options.out)))
    return retrieve_from(options, digest, options.out, listener)


def explain(folder: str | Path, listener: Listener = ignore) -> Explained:
    """Find out what the failure comes from that a run has reduced.

    Asks the result which decisions of the compiler its failure needs, and what each
    flag of PyTorch's debugging guide says of it; ``explain.json`` holds what is known,
    and the header of ``repro.py`` the cause.

    Args:
        folder: of a run that is over.

    Raises:
        UsageError: no result is there, or something has changed since.
        LoadError: the program, its inputs or a preload is not there any more.
        WorkerError: the process that holds torch died.
    """
    require_surroundings()
    options = over(Path(folder))
    listener(Begun("explain", str(options.model), str(folder)))
    return explain_folder(options, Path(folder), listener)


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
