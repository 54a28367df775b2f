"""The tasks of a child: one method or function per task."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch.utils import collect_env

from shrinkfx.failure.signature import Stage
from shrinkfx.program.listing.printed_program import PrintedProgram, Run
from shrinkfx.protocol.answers import (
    Answer,
    Collected,
    Description,
    Done,
    Examined,
    Fitted,
    Inspected,
    Invalid,
    OpenSizes,
    Printed,
    Registered,
    Row,
    Status,
)
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import (
    CheckAtSizes,
    CheckCandidate,
    CheckOptions,
    CheckOriginal,
    CollectVersions,
    CompileOriginal,
    Describe,
    Examine,
    ExamineCandidate,
    ExportRunnable,
    ExportSample,
    FindSpace,
    FitRewrites,
    InspectEnvironment,
    ListCandidate,
    ReadSettings,
    Request,
    RunPreload,
    RunRunnable,
    RunScript,
    SaveCandidate,
    SaveInputs,
    WriteCandidate,
)
from shrinkfx.versions import RANGE
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.checking.check import check
from shrinkfx.worker.checking.evidence import (
    describe_printed,
    print_graph,
    text_of_listing,
)
from shrinkfx.worker.checking.in_script import run_script
from shrinkfx.worker.checking.reference import Reference
from shrinkfx.worker.checking.with_aoti import (
    check_undeclared_sizes,
    compile_instrumented,
)
from shrinkfx.worker.cpu_memory import guard_pages
from shrinkfx.worker.cuda_memory import red_zones, sanitizer
from shrinkfx.worker.eager.intermediates import EagerValues
from shrinkfx.worker.explaining.compiler_decisions import read_settings
from shrinkfx.worker.explaining.origins import restore_known_names
from shrinkfx.worker.forkserver import last_words
from shrinkfx.worker.forkserver.supervise import OPERATOR, Note
from shrinkfx.worker.graph.describe import (
    content_digest,
    count_inputs,
    count_operators,
    describe,
    dynamic_dims,
    is_functional,
    keeps_state,
)
from shrinkfx.worker.graph.rebuild import CannotRebuild, RebuiltCandidate
from shrinkfx.worker.listing.fit import fit_rewrites
from shrinkfx.worker.loading import devices
from shrinkfx.worker.loading.import_advice import (
    PTXAS_FROM,
    ptxas_version,
    summarize_error,
    triton_version,
)
from shrinkfx.worker.operators.examine import examine, examine_runs
from shrinkfx.worker.operators.repeated_call import custom_operators
from shrinkfx.worker.preloads.alone import register
from shrinkfx.worker.printing.module import Unprintable
from shrinkfx.worker.private_api import FEATURES
from shrinkfx.worker.sizes.read_space import find_space
from shrinkfx.worker.worker_state import SKELETON, WorkerState


class Worker(WorkerState):
    """A server's state with the methods that answer requests, in a forked child."""

    def perform(self, request: Request, note: Note, folder: Path) -> Answer:
        return request.task.require(self._answer(request, note, folder))

    def settle(self, request: Request) -> None:
        """Apply the settings that must precede CUDA; a pre-warmed child has done so."""
        side = request.options.guard_pages
        if self.on_gpu:
            red_zones.install_red_zones(side, loud=isinstance(request.task, RunScript))
        else:
            guard_pages.set_guard_side(side)
        _set_variables(request.options.environment)

    def instrument(self, request: Request, note: Note, folder: Path) -> Request:
        """Compile the program for an interpreter that runs under AddressSanitizer."""
        match request.task:
            case CheckOriginal():
                return compile_instrumented(
                    self.setup, self._input_program, request, note, folder
                )
            case CheckCandidate() as task:
                build = partial(self.build_candidate, task, request.options)
                return compile_instrumented(self.setup, build, request, note, folder)
        return request

    def _answer(self, request: Request, note: Note, folder: Path) -> Answer:
        torch.set_num_threads(self.threads)
        if request.one_thread:
            last_words.limit_to_one_thread()
        self.settle(request)
        options = request.options
        match request.task:
            case Describe():
                return self._describe(options, note, folder)
            case Examine() as task:
                return self._examine(task, note, folder)
            case ExamineCandidate() as task:
                return self._examine_candidate(task, options, note, folder)
            case CheckOriginal():
                return self._check_original(options, note, folder)
            case CheckCandidate() as task:
                return self._check_candidate(task, options, note, folder)
            case SaveCandidate() as task:
                return self._save(task, options, note)
            case WriteCandidate() as task:
                return self._write(task, options, note)
            case FitRewrites() as task:
                return self._fit(task, options, note)
            case ListCandidate() as task:
                return self._list(task, options, note)
            case FindSpace():
                return self._find_space(note)
            case CompileOriginal():
                return self._compile(options, note, folder)
            case CheckAtSizes() as task:
                return self._check_at_sizes(task, options, note, folder)
            case SaveInputs() as task:
                return self._save_inputs(task, note)
            case ReadSettings() as task:
                note(Stage.DONE)
                return read_settings(self.setup, task.wanted)
            case CollectVersions():
                return self._collect_versions(note)
            case InspectEnvironment():
                note(Stage.DONE)
                return inspect()
            case ExportSample() as task:
                return export_sample(task, note)
            case RunPreload() as task:
                return self._register(task, note, folder)
            case ExportRunnable() as task:
                from shrinkfx.worker.intake.runnable import export_runnable

                return export_runnable(task, note, folder)
            case RunRunnable() as task:
                from shrinkfx.worker.intake.runnable import run_runnable

                return run_runnable(task, note, folder)
            case RunScript() as task:
                return run_script(task, self.setup, options, note, folder)
        raise TypeError(f"no worker does {request.task}")

    def _describe(self, options: CheckOptions, note: Note, folder: Path) -> Description:
        self.prepare_eager()
        note(Stage.EAGER)
        program, home = self.base_program(options.graph)
        recorded = EagerValues(home, program).record(program, folder / OPERATOR)
        content = content_digest(
            self.setup.model, self.setup.inputs, *self.setup.preloads
        )
        skeleton = describe(program, content).to_json()
        path = home / SKELETON
        path.write_text(json.dumps(skeleton))
        note(Stage.DONE)
        return Description(
            skeleton=str(path),
            eager_error=recorded.error,
            stopped=recorded.stopped,
            mismatches=recorded.mismatches,
            custom=tuple(custom_operators(program.original)),
            inputs=count_inputs(program.original),
            dynamic_dims=dynamic_dims(program.original),
            keeps_state=keeps_state(program),
            functional=is_functional(program.original),
            operators=count_operators(program.original.graph_module),
        )

    def _examine(self, task: Examine, note: Note, folder: Path) -> Examined:
        self.prepare_eager()
        note(Stage.EAGER)
        return examine(self.load_program(), task, folder / OPERATOR)

    def _examine_candidate(
        self, task: ExamineCandidate, options: CheckOptions, note: Note, folder: Path
    ) -> Answer:
        note(Stage.REBUILD)
        try:
            built = self.build_candidate(task, options)
        except (CannotRebuild, Unprintable) as error:
            return Invalid(str(error))
        if built.names is not None and not built.names.why_not:
            built = built.with_original_names()
        self.prepare_eager()
        note(Stage.EAGER)
        runs = [built.passing] if built.passing else []
        runs.append(built.failing)
        return examine_runs(built.exported, runs, task, folder / OPERATOR)

    def _check_original(
        self, options: CheckOptions, note: Note, folder: Path
    ) -> Answer:
        return check(self.setup, self._input_program(), options, note, folder)

    def _input_program(self) -> RebuiltCandidate:
        """Return the input program unchanged."""
        program = self.load_program()
        inputs = program.example, program.failing
        original = program.original
        return RebuiltCandidate(
            original, *inputs, passing=program.passing, original=original
        )

    def _check_candidate(
        self,
        task: CheckCandidate,
        options: CheckOptions,
        note: Note,
        folder: Path,
    ) -> Answer:
        note(Stage.REBUILD)
        try:
            built = self.build_candidate(task, options)
        except (CannotRebuild, Unprintable) as error:
            return Invalid(str(error))
        built, options = restore_known_names(built, options)
        return check(self.setup, built, options, note, folder)

    def _save(self, task: SaveCandidate, options: CheckOptions, note: Note) -> Answer:
        """Save a candidate and its inputs as files for the user's command."""
        note(Stage.REBUILD)
        try:
            built = self.build_candidate(task, options)
        except (CannotRebuild, Unprintable) as error:
            return Invalid(str(error))
        self.prepare_eager()
        note(Stage.EAGER)
        Reference(built, options).run_eager()
        try:
            self.save_program(built.exported, Path(task.path))
        except Exception as error:  # noqa: BLE001 - it raises anything
            return Invalid(f"torch.export.save refuses it: {error}")
        torch.save(built.failing.args, task.inputs)
        note(Stage.DONE)
        return Done()

    def _write(
        self, task: WriteCandidate, options: CheckOptions, note: Note
    ) -> Printed:
        note(Stage.REBUILD)
        built = self.build_candidate(task, options)
        as_source = self.write_program(built.exported, Path(task.path))
        device = "cuda" if self.setup.backend == Backend.INTERPRETER else ""
        listing = self.candidate(task, options).listing
        if task.at_passing and built.at_passing:
            built = built.at_passing
            listing = listing.with_single_run(Run.PASSING) if listing else None
        if listing is None:
            two_sets = self.load_program().failing is not self.load_program().example
            text = print_graph(built, device, two_sets=two_sets)
        else:
            text = text_of_listing(built, listing, self.saved_values(options), device)
        if task.anonymous:
            text = text.without_names()
        torch.save(text.values, task.data)
        self.prepare_eager()
        note(Stage.DONE)
        return replace(
            describe_printed(built, text, options), is_source_archive=as_source
        )

    def _list(self, task: ListCandidate, options: CheckOptions, note: Note) -> Answer:
        note(Stage.REBUILD)
        try:
            answer = self.listing_of_candidate(task, options)
        except (CannotRebuild, Unprintable) as error:
            return Invalid(str(error))
        note(Stage.DONE)
        return answer

    def _fit(self, task: FitRewrites, options: CheckOptions, note: Note) -> Fitted:
        note(Stage.REBUILD)
        listing = PrintedProgram.from_json(task.candidate["listing"])
        fitted = fit_rewrites(listing, task.rewrites, self.saved_values(options))
        note(Stage.DONE)
        return fitted

    def _find_space(self, note: Note) -> OpenSizes:
        program = self.load_program()
        space = find_space(program.original, program.failing)
        note(Stage.DONE)
        return OpenSizes(space)

    def _compile(self, options: CheckOptions, note: Note, folder: Path) -> Done:
        note(Stage.COMPILE)
        original = self.load_program().original
        aoti.build_once(original, folder, self.setup.inductor, options)
        note(Stage.DONE)
        return Done()

    def _check_at_sizes(
        self, task: CheckAtSizes, options: CheckOptions, note: Note, folder: Path
    ) -> Answer:
        run = self.program_at_sizes(task.sizes, task.seed)
        checked = check_undeclared_sizes if task.outside else check
        return checked(self.setup, run, options, note, folder)

    def _save_inputs(self, task: SaveInputs, note: Note) -> Done:
        made = self.program_at_sizes(task.sizes, task.seed).failing
        saved = {"args": made.args, "kwargs": made.kwargs}
        passing = {}
        if task.passing is not None:
            near = self.program_at_sizes(task.passing, task.seed).failing
            passing = {"passing": {"args": near.args, "kwargs": near.kwargs}}
        torch.save({**saved, **passing}, task.path)
        note(Stage.DONE)
        return Done()

    def _collect_versions(self, note: Note) -> Collected:
        note(Stage.DONE)
        text = collect_env.get_pretty_env_info()
        return Collected(text, (socket.gethostname(), platform.node()))

    def _register(self, task: RunPreload, note: Note, folder: Path) -> Registered:
        note(Stage.RUN)
        setup = replace(self.setup, model=task.model, directory=str(folder))
        answer = register(Path(task.path), setup, task.operators)
        note(Stage.DONE)
        return answer


def _set_variables(environment: Mapping[str, str]) -> None:
    """Set environment variables of this process; an empty value removes one."""
    for name, value in environment.items():
        if value:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


# Inspect the environment for ``shrinkfx doctor``, in a worker without a program.
#
# Each function that makes a row names one part. To add a part, add a function here
# and its call in ``inspect``.


class _Sample(torch.nn.Module):
    """A program of two operators, which Inductor fuses into one kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + 1.0


def export_sample(task: ExportSample, note: Note) -> Done:
    """Export a program of two operators, and save it."""
    note(Stage.EAGER)
    exported = torch.export.export(_Sample(), (torch.linspace(-1.0, 1.0, 64),))
    torch.export.save(exported, Path(task.path))
    note(Stage.DONE)
    return Done()


def inspect() -> Inspected:
    """Return the rows of the parts that need no program."""
    triton = _triton()
    others = _ptxas(triton), _gpu(), _compute_sanitizer()
    return Inspected((triton, *others, *_private_names()))


def _private_names() -> list[Row]:
    """Make a row for each feature that lacks a name, or one row if none does."""
    part, remedy = "private names of PyTorch", f"Install torch {RANGE}."
    return [
        Row(part, Status.MISSING, each.missing, _sentence(each.without), remedy)
        for each in FEATURES
        if each.missing
    ] or [
        Row(
            part, Status.WORKS, "this PyTorch has every private name that shrinkfx uses"
        )
    ]


def _tool(
    part: str,
    get_version: Callable[[], str],
    absent: type[Exception],
    cost: str,
    remedy: str,
) -> Row:
    """Make the row of a tool, with its version or its failure.

    Args:
        get_version: returns the version of the tool.
        absent: the exception that ``get_version`` raises if the tool is not installed.
    """
    try:
        return Row(part, Status.WORKS, get_version())
    except absent as error:
        return Row(part, Status.MISSING, summarize_error(error), cost, remedy)
    except Exception as error:  # noqa: BLE001 - any other error: it is broken
        return Row(part, Status.BROKEN, summarize_error(error), cost, remedy)


def _triton() -> Row:
    cost = "CUDA programs cannot be compiled; CPU programs do not need Triton."
    remedy = f"Run {sys.executable} -m pip install triton."
    return _tool("Triton", triton_version, ModuleNotFoundError, cost, remedy)


def _ptxas(triton: Row) -> Row:
    if not triton.works:
        return Row("ptxas", Status.NOT_TRIED, "needs Triton: see that row")
    cost = "CUDA programs cannot be compiled."
    return _tool("ptxas", ptxas_version, RuntimeError, cost, _sentence(PTXAS_FROM))


def _gpu() -> Row:
    if torch.cuda.is_available():
        gpu = devices.describe_gpu(0, devices.gpu_properties(0))
        return Row("GPU", Status.WORKS, gpu)
    cuda = torch.version.cuda
    built = f"torch is built for CUDA {cuda}" if cuda else "torch is built without CUDA"
    smi = shutil.which("nvidia-smi") or "not on the PATH"
    return Row(
        "GPU",
        Status.MISSING,
        f"{devices.describe_gpu_count()}; {built}; nvidia-smi: {smi}",
        "CUDA programs are checked on Triton's interpreter, which detects no races "
        "and runs no kernels of libraries.",
        "Run shrinkfx on a machine with an NVIDIA GPU and its driver"
        + (", and with a torch that is built for CUDA." if not cuda else "."),
    )


def _compute_sanitizer() -> Row:
    part = "compute-sanitizer"
    try:
        found, *_ = sanitizer.command("memcheck")
    except sanitizer.CannotSanitize as error:
        seen, _, remedy = str(error).partition(": ")
        cost = (
            "On a GPU, a repro does not name the kernel of an illegal access, and "
            "races are not found."
        )
        return Row(part, Status.MISSING, seen, cost, _sentence(remedy))
    return Row(part, Status.WORKS, found)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
