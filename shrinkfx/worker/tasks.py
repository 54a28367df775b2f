"""The tasks of a child: one method or function per task."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import runpy
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils import collect_env

from shrinkfx.failure.signature import Stage
from shrinkfx.program.listing.printed_program import PrintedProgram, Run
from shrinkfx.protocol import requests
from shrinkfx.protocol.answers import (
    COMMON_ANSWERS,
    Answer,
    Checked,
    Collected,
    Description,
    Done,
    Inspected,
    Invalid,
    OpenSizes,
    Printed,
    Row,
    Status,
    Stopped,
    Unresolved,
)
from shrinkfx.protocol.choices import Backend, Build, Probe
from shrinkfx.protocol.requests import Request
from shrinkfx.versions import RANGE
from shrinkfx.worker import bare_script
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.aoti.fast_build import fast_build, with_plain_wrapper
from shrinkfx.worker.aoti.object_store import SharedObjects
from shrinkfx.worker.aoti.shared_libraries import shared_extensions, shared_objects
from shrinkfx.worker.checking import evidence
from shrinkfx.worker.checking.check import (
    Check,
    check_undeclared_sizes,
    compile_for_sanitizer,
    find_invalid_index,
)
from shrinkfx.worker.checking.reference import Reference
from shrinkfx.worker.cpu_memory import guard_pages
from shrinkfx.worker.cuda_memory import red_zones, sanitizer
from shrinkfx.worker.eager.intermediates import EagerValues
from shrinkfx.worker.explaining.compiler_decisions import read_settings
from shrinkfx.worker.explaining.origins import restore_known_names
from shrinkfx.worker.forkserver import last_words
from shrinkfx.worker.forkserver.supervise import OPERATOR, Note
from shrinkfx.worker.graph import describe
from shrinkfx.worker.graph.rebuild import CannotRebuild, RebuiltCandidate
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.interpreter.repro_script import replace_cuda
from shrinkfx.worker.listing.fit import fit_rewrites
from shrinkfx.worker.loading import devices, import_advice
from shrinkfx.worker.model import Inputs
from shrinkfx.worker.operators.examine import custom_operators, examine, examine_runs
from shrinkfx.worker.preloads.alone import register
from shrinkfx.worker.printing.module import Unprintable
from shrinkfx.worker.private_api import FEATURES, inductor_api
from shrinkfx.worker.sizes.read_space import find_space
from shrinkfx.worker.worker_state import SKELETON, WorkerState


@dataclass(frozen=True)
class Job:
    """A request in the child that answers it.

    Attributes:
        note: notes each stage before it begins.
        folder: the child's own folder.
    """

    request: Request
    note: Note
    folder: Path

    @property
    def task(self) -> Any:
        return self.request.task

    @property
    def options(self) -> requests.CheckOptions:
        return self.request.options


class Worker(WorkerState):
    """A server's state with the methods that answer requests, in a forked child."""

    def perform(self, request: Request, note: Note, folder: Path) -> Answer:
        torch.set_num_threads(self.threads)
        if request.one_thread:
            last_words.limit_to_one_thread()
        self.settle(request)
        perform = TASKS.get(type(request.task))
        if perform is None:
            raise TypeError(f"no worker does {request.task}")
        try:
            answer = perform(self, Job(request, note, folder))
        except _InvalidCandidate as error:
            answer = Invalid(str(error))
        if not isinstance(answer, (Checked, *COMMON_ANSWERS)):  # a check notes its end
            note(Stage.DONE)
        return request.task.require(answer)

    def settle(self, request: Request) -> None:
        """Apply the settings that must precede CUDA; a pre-warmed child has done so."""
        side = request.options.guard_pages
        if self.on_gpu:
            is_script = isinstance(request.task, requests.RunScript)
            red_zones.install_red_zones(side, loud=is_script)
        else:
            guard_pages.set_guard_side(side)
        _set_variables(request.options.environment)

    def compile_for_sanitizer(
        self, request: Request, note: Note, folder: Path
    ) -> Request:
        """Compile the program for an interpreter that runs under a sanitizer."""
        build = self._input_program
        if isinstance(request.task, requests.CheckCandidate):
            build = partial(self.build_candidate, request.task, request.options)
        elif not isinstance(request.task, requests.CheckOriginal):
            return request
        return compile_for_sanitizer(self.setup, build, request, note, folder)

    def describe(self, job: Job) -> Description:
        self.prepare_eager()
        job.note(Stage.EAGER)
        program, home = self.base_program(job.options.graph)
        recorded = EagerValues(home, program).record(program, job.folder / OPERATOR)
        content = describe.content_digest(
            self.setup.model, self.setup.inputs, *self.setup.preloads
        )
        path, original = home / SKELETON, program.original
        skeleton = describe.describe(program, content)
        path.write_text(json.dumps(skeleton.to_json()))
        return Description(
            skeleton=str(path),
            eager_error=recorded.error,
            stopped=recorded.stopped,
            mismatches=recorded.mismatches,
            custom=tuple(custom_operators(original)),
            inputs=describe.count_inputs(original),
            dynamic_dims=describe.dynamic_dims(original),
            keeps_state=describe.keeps_state(program),
            functional=describe.is_functional(original),
            operators=describe.count_operators(original.graph_module),
        )

    def examine(self, job: Job) -> Answer:
        self.prepare_eager()
        job.note(Stage.EAGER)
        return examine(self.load_program(), job.task, job.folder / OPERATOR)

    def examine_candidate(self, job: Job) -> Answer:
        built = self._build(job)
        if built.names is not None and not built.names.why_not:
            built = built.with_original_names()
        self.prepare_eager()
        job.note(Stage.EAGER)
        runs = [*([built.passing] if built.passing else []), built.failing]
        return examine_runs(built.exported, runs, job.task, job.folder / OPERATOR)

    def _build(self, job: Job) -> RebuiltCandidate:
        """Build the program of a candidate.

        Raises:
            _InvalidCandidate: the candidate is no program.
        """
        job.note(Stage.REBUILD)
        try:
            return self.build_candidate(job.task, job.options)
        except (CannotRebuild, Unprintable) as error:
            raise _InvalidCandidate(str(error)) from error

    def _check(self, job: Job, run: RebuiltCandidate) -> Check:
        return Check(self.setup, run, job.options, job.note, job.folder)

    def check_original(self, job: Job) -> Answer:
        return self._check(job, self._input_program()).perform()

    def _input_program(self) -> RebuiltCandidate:
        """Return the input program unchanged."""
        program = self.load_program()
        inputs = program.example, program.failing
        original = program.original
        return RebuiltCandidate(
            original, *inputs, passing=program.passing, original=original
        )

    def check_candidate(self, job: Job) -> Answer:
        built, options = restore_known_names(self._build(job), job.options)
        on_interpreter = self.setup.backend == Backend.INTERPRETER
        if on_interpreter and (why := find_invalid_index(built, self.load_program())):
            return Stopped(why)
        return replace(self._check(job, built), options=options).perform()

    def check_at_sizes(self, job: Job) -> Answer:
        run = self.program_at_sizes(job.task.sizes, job.task.seed)
        check = self._check(job, run)
        return check_undeclared_sizes(check) if job.task.outside else check.perform()

    def save(self, job: Job) -> Answer:
        """Save a candidate and its inputs as files for the user's command."""
        built = self._build(job)
        self.prepare_eager()
        job.note(Stage.EAGER)
        Reference(built, job.options).run_eager()
        try:
            self.save_program(built.exported, Path(job.task.path))
        except Exception as error:  # noqa: BLE001 - it raises anything
            return Invalid(f"torch.export.save refuses it: {error}")
        torch.save(built.failing.args, job.task.inputs)
        return Done()

    def write(self, job: Job) -> Printed:
        """Save a candidate as a file, and print it as source code."""
        job.note(Stage.REBUILD)
        task, options = job.task, job.options
        built = self.build_candidate(task, options)
        as_source = self.write_program(built.exported, Path(task.path))
        device = "cuda" if self.setup.backend == Backend.INTERPRETER else ""
        listing = self.candidate(task, options).listing
        if task.at_passing and built.at_passing:
            built = built.at_passing
            listing = listing.with_single_run(Run.PASSING) if listing else None
        if listing is None:
            two_sets = self.load_program().failing is not self.load_program().example
            text = evidence.print_graph(built, device, two_sets=two_sets)
        else:
            saved = self.saved_values(options)
            text = evidence.text_of_listing(built, listing, saved, device)
        if task.anonymous:
            text = text.without_names()
        torch.save(text.values, task.data)
        self.prepare_eager()
        printed = evidence.describe_printed(built, text, options)
        return replace(printed, is_source_archive=as_source)

    def list_candidate(self, job: Job) -> Answer:
        job.note(Stage.REBUILD)
        try:
            return self.listing_of_candidate(job.task, job.options)
        except (CannotRebuild, Unprintable) as error:
            return Invalid(str(error))

    def fit(self, job: Job) -> Answer:
        job.note(Stage.REBUILD)
        listing = PrintedProgram.from_json(job.task.candidate["listing"])
        saved = self.saved_values(job.options)
        return fit_rewrites(listing, job.task.rewrites, saved)

    def find_space(self, job: Job) -> OpenSizes:
        program = self.load_program()
        return OpenSizes(find_space(program.original, program.failing))

    def compile(self, job: Job) -> Done:
        job.note(Stage.COMPILE)
        original = self.load_program().original
        aoti.build_once(original, job.folder, self.setup.inductor, job.options)
        return Done()

    def save_inputs(self, job: Job) -> Done:
        """Save inputs of some sizes, and passing inputs if the task has their sizes."""

        def at(sizes: Mapping[str, int]) -> Inputs:
            return self.program_at_sizes(sizes, job.task.seed).failing

        passing = job.task.passing
        saved = {} if passing is None else {"passing": vars(at(passing))}
        torch.save({**vars(at(job.task.sizes)), **saved}, job.task.path)
        return Done()

    def run_preload(self, job: Job) -> Answer:
        job.note(Stage.RUN)
        task = job.task
        setup = replace(self.setup, model=task.model, directory=str(job.folder))
        return register(Path(task.path), setup, task.operators)


class _InvalidCandidate(Exception):
    """A candidate is no program; says why."""


def _collect_versions(worker: Worker, job: Job) -> Collected:
    text = collect_env.get_pretty_env_info()
    return Collected(text, (socket.gethostname(), platform.node()))


def _export_runnable(worker: Worker, job: Job) -> Answer:
    from shrinkfx.worker.intake.runnable import export_runnable

    return export_runnable(job.task, job.note, job.folder)


def _run_script(worker: Worker, job: Job) -> Done | Unresolved:
    """Run a script as a new Python would; its failure ends this process alike."""
    task, options, folder = job.task, job.options, job.folder
    os.chdir(task.cwd)
    temporary = aoti.own_cache_variables(folder)
    environment = {**bare_script.environment(folder), **temporary}
    job.note(Stage.RUN)
    if worker.setup.backend == Backend.INTERPRETER:
        if reason := interpreter.find_missing_api():
            return Unresolved(reason)
        probe = options.probe or Probe.REAL
        replace_cuda(Path(task.path), worker.setup, probe)
    sys.argv = [task.path]
    try:
        shared = shared_extensions(folder, Path(task.path))
        with _choose_build(options.build, folder), shared:
            bare_script.act_as_new_interpreter(environment, task.cwd)
            runpy.run_path(task.path, run_name="__main__")
        red_zones.log_zone_protection()
        red_zones.check_zones(" of a script")  # this process skips its exit handlers
    except interpreter.Unsupported as error:
        return Unresolved(str(error))
    return Done()


@contextlib.contextmanager
def _choose_build(build: Build, folder: Path) -> Iterator[None]:
    """Compile with the given kind of build, and share objects with other children."""
    if build is Build.STOCK:
        with shared_objects(folder):
            yield
    else:
        plain = inductor_api.config.patch(dict(with_plain_wrapper({})))
        with plain, fast_build(folder, None, SharedObjects(folder)):
            yield


TASKS: Mapping[type[requests.Task], Callable[[Worker, Job], Answer]] = {
    requests.Describe: Worker.describe,
    requests.Examine: Worker.examine,
    requests.ExamineCandidate: Worker.examine_candidate,
    requests.CheckOriginal: Worker.check_original,
    requests.CheckCandidate: Worker.check_candidate,
    requests.CheckAtSizes: Worker.check_at_sizes,
    requests.SaveCandidate: Worker.save,
    requests.WriteCandidate: Worker.write,
    requests.ListCandidate: Worker.list_candidate,
    requests.FitRewrites: Worker.fit,
    requests.FindSpace: Worker.find_space,
    requests.CompileOriginal: Worker.compile,
    requests.SaveInputs: Worker.save_inputs,
    requests.RunPreload: Worker.run_preload,
    requests.RunScript: _run_script,
    requests.ReadSettings: lambda worker, job: read_settings(
        worker.setup, job.task.wanted
    ),
    requests.CollectVersions: _collect_versions,
    requests.InspectEnvironment: lambda worker, job: inspect(),
    requests.ExportSample: lambda worker, job: export_sample(job.task, job.note),
    requests.ExportRunnable: _export_runnable,
}


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


def export_sample(task: requests.ExportSample, note: Note) -> Done:
    """Export a program of two operators, and save it."""
    note(Stage.EAGER)
    exported = torch.export.export(_Sample(), (torch.linspace(-1.0, 1.0, 64),))
    torch.export.save(exported, Path(task.path))
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
        return Row(
            part, Status.MISSING, import_advice.summarize_error(error), cost, remedy
        )
    except Exception as error:  # noqa: BLE001 - any other error: it is broken
        return Row(
            part, Status.BROKEN, import_advice.summarize_error(error), cost, remedy
        )


def _triton() -> Row:
    cost = "CUDA programs cannot be compiled; CPU programs do not need Triton."
    remedy = f"Run {sys.executable} -m pip install triton."
    return _tool(
        "Triton", import_advice.triton_version, ModuleNotFoundError, cost, remedy
    )


def _ptxas(triton: Row) -> Row:
    if not triton.works:
        return Row("ptxas", Status.NOT_TRIED, "needs Triton: see that row")
    cost = "CUDA programs cannot be compiled."
    return _tool(
        "ptxas",
        import_advice.ptxas_version,
        RuntimeError,
        cost,
        _sentence(import_advice.PTXAS_FROM),
    )


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
