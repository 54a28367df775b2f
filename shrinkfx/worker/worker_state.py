"""The state of the server that every child inherits, and the programs built from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.export import ExportedProgram

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.printed_program import PrintedProgram, Run
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.answers import Listed
from shrinkfx.protocol.choices import Backend, CandidateForm, GraphForm
from shrinkfx.protocol.requests import (
    CheckCandidate,
    CheckOptions,
    ExamineCandidate,
    ListCandidate,
    SaveCandidate,
    Setup,
    WriteCandidate,
)
from shrinkfx.worker.eager.inputs_at import make_inputs_at
from shrinkfx.worker.eager.intermediates import EagerValues
from shrinkfx.worker.graph.inline_cond import inline_conds
from shrinkfx.worker.graph.rebuild import RebuiltCandidate, rebuild
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.listing.build import build
from shrinkfx.worker.listing.describe import describe, saved_weights
from shrinkfx.worker.loading.devices import is_on_gpu, save_for_cuda
from shrinkfx.worker.loading.load import load
from shrinkfx.worker.model import Program
from shrinkfx.worker.printing.module import export_source, save_program_or_source

SKELETON = "skeleton.json"

CandidateTask = (
    CheckCandidate | ExamineCandidate | SaveCandidate | WriteCandidate | ListCandidate
)
"""Tasks about a candidate."""


@dataclass
class WorkerState:
    """The state of the server that every child inherits.

    Attributes:
        setup: how the server was started.
        threads: the number of threads that a child sets again; the server uses one.
        program: the loaded program; None until it is loaded.
    """

    setup: Setup
    threads: int
    program: Program | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether programs run on a GPU."""
        return is_on_gpu(self.setup)

    def load_program(self) -> Program:
        """Return the program, and load it first if the server could not.

        The server cannot load a CUDA program, because that needs a CUDA context.
        """
        if self.program is None:
            self.program = load(self.setup)
        return self.program

    def base_program(self, form: GraphForm) -> tuple[Program, Path]:
        """Return the program whose graph candidates are cut from, and its folder."""
        folder = self.graph_folder(form)
        match form:
            case GraphForm.FUNCTIONAL:
                return self.load_program(), folder
            case GraphForm.IN_PLACE:
                return self.load_program().as_exported(), folder
            case GraphForm.INLINED_COND:
                return inline_conds(self.load_program(), folder), folder

    def graph_folder(self, form: GraphForm) -> Path:
        """Return the folder of the skeleton and values of the graph in that form."""
        return Path(self.setup.directory) / f"graph-{form}"

    def prepare_eager(self) -> None:
        """Let a user's Triton kernels run here; no code can be generated after that."""
        if self.setup.backend == Backend.INTERPRETER:
            interpreter.switch_on(self.setup.arch)

    def build_candidate(
        self, task: CandidateTask, options: CheckOptions
    ) -> RebuiltCandidate:
        """Build the program of a candidate, in the requested form.

        Raises:
            CannotRebuild: the candidate is not a valid program.
            Unprintable: the candidate cannot be printed as source code.
        """
        candidate = self.candidate(task, options)
        if candidate.listing is not None:
            return self._build_listing(candidate.listing, options)
        built = self.cut_candidate(candidate, options)
        for again in (built.stale, options.form is CandidateForm.SOURCE):
            if again:
                built = built.with_new_export(export_source(built)[0])
        return built

    def candidate(self, task: CandidateTask, options: CheckOptions) -> Candidate:
        """Return the candidate of a task."""
        path = self.graph_folder(options.graph) / SKELETON
        skeleton = Skeleton.from_json(json.loads(path.read_text()))
        return Candidate.from_json(skeleton, task.candidate)

    def cut_candidate(
        self, candidate: Candidate, options: CheckOptions
    ) -> RebuiltCandidate:
        """Cut a candidate out of the program, as an exported program."""
        program, home = self.base_program(options.graph)
        return rebuild(program, candidate, EagerValues(home, program), options.taps)

    def listing_of_candidate(
        self, task: ListCandidate, options: CheckOptions
    ) -> Listed:
        """Return the printed program of a candidate.

        Raises:
            CannotRebuild: the candidate is not a valid program.
            Unprintable: the candidate cannot be printed as source code.
        """
        candidate = self.candidate(task, options)
        if candidate.listing is not None:
            return Listed(candidate.listing, Rewrite(()), options.data or "")
        return describe(self.cut_candidate(candidate, options)).save_values(task.data)

    def _build_listing(
        self, listing: PrintedProgram, options: CheckOptions
    ) -> RebuiltCandidate:
        passes = self.load_program().passing is not None
        runs = [run for run in Run if passes or run is not Run.PASSING]
        return build(listing, self.saved_values(options), options.taps, runs)

    def saved_values(self, options: CheckOptions) -> dict[str, torch.Tensor]:
        """Map the keys in printed programs to their saved tensors.

        Weights are the tensors of the program itself.
        """
        program, in_place = self.load_program(), options.graph is GraphForm.IN_PLACE
        saved = saved_weights(program.original if in_place else program.graph)
        if options.data is not None:
            saved |= torch.load(options.data, weights_only=True, mmap=True)
        return saved

    def write_program(self, exported: ExportedProgram, path: Path) -> bool:
        """Save a program for its device; return whether it is a source archive."""
        for_cuda = self.setup.backend == Backend.INTERPRETER
        return save_program_or_source(exported, path, for_cuda=for_cuda)

    def save_program(self, exported: ExportedProgram, path: Path) -> None:
        """Save a program with ``torch.export.save``, for the device it is meant for."""
        for_cuda = self.setup.backend == Backend.INTERPRETER
        save = save_for_cuda if for_cuda else torch.export.save
        save(exported, path)

    def program_at_sizes(self, sizes: Mapping[str, int], seed: int) -> RebuiltCandidate:
        """Return the input program with inputs of the requested sizes."""
        program = self.load_program()
        made = make_inputs_at(program, sizes, seed, self.setup.inputs)
        return RebuiltCandidate(program.original, program.example, made)
