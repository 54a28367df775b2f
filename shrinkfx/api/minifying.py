"""One call from a failing program, in a file or in memory, to a verified repro."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from shrinkfx.api.in_python import public
from shrinkfx.api.reducing import reduce
from shrinkfx.events import Listener, Noted
from shrinkfx.intake.in_memory import Given, written_down
from shrinkfx.options.options import Options, Reduction
from shrinkfx.options.values import kinds_to_keep
from shrinkfx.progress.shown import shown, sum_up
from shrinkfx.protocol.choices import ARCHS, Backend, Build, InductorOptions
from shrinkfx.validation import require_sense, require_surroundings


@public
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
    """Reduce a program to the smallest that fails in the same way.

    Args:
        path: a ``.pt2`` as ``torch.export.save`` writes it; or a dump: of PyTorch's
            AOTI minifier, or a graph that torch.compile has left as code; or an
            ``ExportedProgram``, or an ``nn.Module``, which is exported as it is.
        args: what a module is exported with; the failing inputs of a program.
        kwargs: the same, by name.
        dynamic_shapes: of a module, as ``torch.export.export`` takes them.
        until: a kind of failure, ``any``, or None for whatever the program shows.
        strict_kind: refuse a program that fails with another kind of error than
            ``until`` says.
        match: a regular expression that the failure's text must hold.
        check: a command that exits with 0 where the ``.pt2`` at ``{}`` still fails,
            and with 125 where it can't tell; it takes the place of ``until``.
        inputs: the failing inputs, where they differ from those in the ``.pt2``.
        preload: modules, ``.py`` or ``.so`` files that register custom operators.
        run_code: run the code of such a graph, or of a source archive, to export it.
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
        guard_pages: ``auto``, ``on`` or ``off``: have tensors lie against inaccessible
            pages; ``auto`` does for ``ima`` and ``crash``.
        sanitizer: ``memcheck``, ``initcheck`` or ``racecheck``: the tool of
            compute-sanitizer that looks on in every check on a GPU, or None.
        cuda_coredump: have CUDA leave a core dump of the result's fault.
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
        anonymous: leave names of the model out of ``repro.py``, ``ISSUE.md`` and
            ``report.html``.
        command: how the run was started, for the repro's header.
        quiet: show nothing; else it is a bar in a notebook, elsewhere on stderr what
            the command line shows: a live line or, where it is no terminal, plain
            lines, and at the end what came of it, with the next command to type.
        listener: told of every check and step (``shrinkfx.events``), instead.

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
        strict_kind=strict_kind,
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
        sanitizer=sanitizer,
        cuda_coredump=cuda_coredump,
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
    try:
        with shown(listener, quiet=quiet) as told:
            work = reduce if given.is_path else partial(_reduce, given)
            reduction = work(options, told)
    except KeyboardInterrupt as error:
        # What this was at tells nobody anything: how to go on is seen without that.
        raise error.with_traceback(None) from None
    if listener is None and not quiet:
        sum_up(str(reduction))
    return reduction


def _reduce(given: Given, options: Options, listener: Listener) -> Reduction:
    """Reduce an object, which a run takes for a file in its own folder."""
    require_surroundings()
    require_sense(options)
    with written_down(given, options) as (asked, found):
        for text in found.said:
            listener(Noted(text))
        return reduce(asked, listener)
