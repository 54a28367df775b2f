"""What a child does: one function per task."""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.failure.signature import Stage
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.messages import Backend, Guard, Probe, Request, Setup, Task
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.worker import last_words, stranger
from shrinkfx.worker.attempt import attempt, attempt_outside
from shrinkfx.worker.backends import aoti, interpreter
from shrinkfx.worker.backends.script import stand_in_for_cuda
from shrinkfx.worker.custom import custom_operators
from shrinkfx.worker.describe import (
    content_digest,
    count_inputs,
    count_operators,
    describe,
    draws_random_numbers,
    dynamic_dims,
    keeps_state,
    mutates,
)
from shrinkfx.worker.devices import save_for_cuda
from shrinkfx.worker.examine import examine
from shrinkfx.worker.inputs import inputs_at
from shrinkfx.worker.load import load
from shrinkfx.worker.memory import guard_pages
from shrinkfx.worker.model import Program
from shrinkfx.worker.opened import with_open_branches
from shrinkfx.worker.preloaded import register
from shrinkfx.worker.rebuild import CannotRebuild, Rebuilt, rebuild
from shrinkfx.worker.reference import Reference
from shrinkfx.worker.source import (
    Unprintable,
    export_source,
    long_values,
    print_program,
)
from shrinkfx.worker.space import find_space
from shrinkfx.worker.supervise import OPERATOR, Note
from shrinkfx.worker.values import Values

_SKELETON = "skeleton.json"


@dataclass
class Worker:
    """What the server holds and every child inherits.

    Attributes:
        threads: to be restored in the child; the server itself runs with one.
    """

    setup: Setup
    threads: int
    program: Program | None = None

    def perform(self, request: Request, note: Note, folder: Path) -> dict[str, Any]:
        torch.set_num_threads(self.threads)
        if request.one_thread:
            last_words.one_thread()
        guard_pages.switch(request.arguments.get("guard_pages", Guard.OFF))
        tasks: dict[str, Callable[[Mapping[str, Any], Note, Path], dict[str, Any]]] = {
            Task.DESCRIBE: self._describe,
            Task.EXAMINE: self._examine,
            Task.ORIGINAL: self._original,
            Task.CANDIDATE: self._candidate,
            Task.SAVE: self._save,
            Task.WRITE: self._write,
            Task.SPACE: self._space,
            Task.COMPILE: self._compile,
            Task.SIZES: self._at_sizes,
            Task.INPUTS: self._save_inputs,
            Task.REGISTER: self._register,
            Task.SCRIPT: self._script,
        }
        return tasks[request.task](request.arguments, note, folder)

    def _loaded(self) -> Program:
        """Load now if the server could not: a CUDA program needs a context."""
        if self.program is None:
            self.program = load(self.setup)
        return self.program

    def _cut_from(self, arguments: Mapping[str, Any]) -> tuple[Program, Path]:
        """Choose the graph that candidates are cut from, and its folder."""
        folder = Path(self.setup.directory) / "graph"
        if arguments.get("in_place"):
            return self._loaded().as_exported(), folder.with_name("graph-in-place")
        if arguments.get("opened"):
            folder = folder.with_name("graph-opened")
            return with_open_branches(self._loaded(), folder), folder
        return self._loaded(), folder

    def _prepare_eager(self) -> None:
        """Let a user's Triton kernels run here; no code can be generated after."""
        if self.setup.backend == Backend.INTERPRETER:
            interpreter.switch_on()

    def _describe(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        self._prepare_eager()
        note(Stage.EAGER)
        program, home = self._cut_from(arguments)
        recorded = Values(home, program).record(program, folder / OPERATOR)
        content = content_digest(
            self.setup.model, self.setup.inputs, *self.setup.preloads
        )
        skeleton = describe(program, content).to_json()
        path = home / _SKELETON
        path.write_text(json.dumps(skeleton))
        note(Stage.DONE)
        return {
            "skeleton": str(path),
            "eager_error": recorded.error,
            "stopped": recorded.stopped,
            "lies": recorded.lies,
            "liars": recorded.liars,
            "custom": custom_operators(program.original),
            "inputs": count_inputs(program.original),
            "dynamic_dims": dynamic_dims(program.original),
            "keeps_state": keeps_state(program),
        }

    def _examine(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        self._prepare_eager()
        note(Stage.EAGER)
        return examine(self._loaded(), arguments, folder / OPERATOR)

    def _original(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        program = self._loaded()
        inputs = program.example, program.failing
        run = Rebuilt(program.original, *inputs, passing=program.passing)
        return attempt(self.setup, run, arguments, note, folder)

    def _candidate(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        note(Stage.REBUILD)
        try:
            built = self._built(arguments)
        except (CannotRebuild, Unprintable) as error:
            return {"invalid": str(error)}
        if not built.outputs:  # exported anew, its nodes have other names
            arguments = {k: v for k, v in arguments.items() if k != "evidence"}
        return attempt(self.setup, built, arguments, note, folder)

    def _built(self, arguments: Mapping[str, Any]) -> Rebuilt:
        """Make a candidate, in the form that was asked for.

        Raises:
            CannotRebuild, Unprintable: it is no program, or none as source.
        """
        program, home = self._cut_from(arguments)
        skeleton = Skeleton.from_json(json.loads((home / _SKELETON).read_text()))
        candidate = Candidate.from_json(skeleton, arguments["candidate"])
        taps = arguments.get("taps", ())
        built = rebuild(program, candidate, Values(home, program), taps)
        for again in (built.stale, arguments.get("form") == "source"):
            if again:
                built = built.exported_again(export_source(built)[0])
        return built

    def _save(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        """Put a candidate and its inputs where a user's command can read them."""
        note(Stage.REBUILD)
        try:
            built = self._built(arguments)
        except (CannotRebuild, Unprintable) as error:
            return {"invalid": str(error)}
        self._prepare_eager()
        note(Stage.EAGER)
        Reference(built, arguments).run_eager()
        self._write_program(built.exported, Path(arguments["path"]))
        torch.save(built.failing.args, arguments["inputs"])
        note(Stage.DONE)
        return {}

    def _write_program(self, exported: ExportedProgram, path: Path) -> None:
        """Save a program for the device that it is meant for."""
        if self.setup.backend == Backend.INTERPRETER:
            save_for_cuda(exported, path)
        else:
            torch.export.save(exported, path)

    def _write(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        note(Stage.REBUILD)
        built = self._built(arguments)
        exported = built.exported
        self._write_program(exported, Path(arguments["path"]))
        on_interpreter = self.setup.backend == Backend.INTERPRETER
        device = "cuda" if on_interpreter else ""
        try:
            # Only a dim can be loose, and a large program takes long to export.
            loose = export_source(built)[1] if dynamic_dims(exported) else frozenset()
            source, unprintable = print_program(built, device, loose).to_json(), ""
        except Exception as error:  # noqa: BLE001 - a script would raise it, too
            source, unprintable = {}, str(error)
        torch.save(long_values(built), arguments["data"])
        self._prepare_eager()
        note(Stage.DONE)
        return {
            "source": source,
            "unprintable": unprintable,
            "two_sets": self._loaded().failing is not self._loaded().example,
            "passes": built.passing is not None,
            "limits": Reference(built, arguments).limits(),
            "operators": count_operators(exported.graph_module),
            "nodes": len(exported.graph.nodes),
            "inputs": count_inputs(exported),
            "dynamic_dims": dynamic_dims(exported),
            "random": draws_random_numbers(exported),
            "mutates": mutates(exported),
            "targets": sorted(
                {str(n.target) for n in exported.graph.nodes if n.op == "call_function"}
            ),
        }

    def _space(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        program = self._loaded()
        space = find_space(program.original, program.failing)
        note(Stage.DONE)
        return {"space": space.to_json()}

    def _compile(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        note(Stage.COMPILE)
        original = self._loaded().original
        aoti.build_once(original, folder, self.setup.inductor, arguments)
        note(Stage.DONE)
        return {}

    def _made(self, arguments: Mapping[str, Any]) -> Rebuilt:
        """Take the original, with inputs of the sizes that were asked for."""
        program, (sizes, seed) = self._loaded(), (arguments["sizes"], arguments["seed"])
        made = inputs_at(program, sizes, seed, self.setup.inputs)
        return Rebuilt(program.original, program.example, made)

    def _at_sizes(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        run = self._made(arguments)
        if arguments.get("outside"):
            return attempt_outside(self.setup, run, arguments, note, folder)
        return attempt(self.setup, run, arguments, note, folder)

    def _save_inputs(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        made = self._made(arguments).failing
        saved: dict[str, Any] = {"args": made.args, "kwargs": made.kwargs}
        if near := arguments.get("passing"):
            passing = self._made({**arguments, "sizes": near}).failing
            saved["passing"] = {"args": passing.args, "kwargs": passing.kwargs}
        torch.save(saved, arguments["path"])
        note(Stage.DONE)
        return {}

    def _register(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        note(Stage.RUN)
        setup = replace(self.setup, model=arguments["model"], directory=str(folder))
        answer = register(Path(arguments["path"]), setup, arguments["operators"])
        note(Stage.DONE)
        return answer

    def _script(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        path, home = arguments["path"], arguments["cwd"]
        os.chdir(home)
        temporary = aoti.temporary_below(folder)
        environment = {**stranger.environment(folder), **temporary}
        note(Stage.RUN)
        if self.setup.backend == Backend.INTERPRETER:
            stand_in_for_cuda(Path(path), self.setup, Probe(arguments["probe"]))
        sys.argv = [path]
        stranger.become(environment, home)
        try:
            runpy.run_path(path, run_name="__main__")
        except interpreter.Unsupported as error:
            return {"unresolved": str(error)}
        note(Stage.DONE)
        return {}
