"""What a child does: one function per task."""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from shrinkfx.failure.signature import Stage
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.messages import Request, Setup, Task
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.worker.backends import aoti
from shrinkfx.worker.describe import content_digest, count_operators, describe
from shrinkfx.worker.load import Program, load
from shrinkfx.worker.rebuild import CannotRebuild, Rebuilt, rebuild
from shrinkfx.worker.source import Unprintable, long_values, print_program, run_source
from shrinkfx.worker.supervise import Note
from shrinkfx.worker.values import Values, call, compare, in_float64

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
        tasks: dict[str, Callable[[Mapping[str, Any], Note, Path], dict[str, Any]]] = {
            Task.DESCRIBE: self._describe,
            Task.ORIGINAL: self._original,
            Task.CANDIDATE: self._candidate,
            Task.WRITE: self._write,
            Task.SCRIPT: self._script,
        }
        return tasks[request.task](request.arguments, note, folder)

    def _loaded(self) -> Program:
        """Load now if the server could not: a CUDA program needs a context."""
        if self.program is None:
            self.program = load(self.setup)
        return self.program

    def _values(self) -> Values:
        return Values(Path(self.setup.directory) / "values", self._loaded())

    def _describe(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        program = self._loaded()
        note(Stage.EAGER)
        error = self._values().record(program)
        content = content_digest(
            self.setup.model, self.setup.inputs, *self.setup.preloads
        )
        skeleton = describe(program, content).to_json()
        path = Path(self.setup.directory) / _SKELETON
        path.write_text(json.dumps(skeleton))
        note(Stage.DONE)
        return {
            "skeleton": str(path),
            "eager_error": error,
            "random": is_random(program.functional),
            "inputs": count_inputs(program.original),
            "dynamic_dims": dynamic_dims(program.original),
        }

    def _original(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        program = self._loaded()
        run = Rebuilt(program.original, program.example, program.failing)
        return self._try(run, arguments, note, folder)

    def _candidate(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        note(Stage.REBUILD)
        try:
            built = self._rebuild(arguments)
            if arguments.get("form") == "source":
                exported = run_source(print_program(built), built)
                built = Rebuilt(exported, built.example, built.failing)
        except (CannotRebuild, Unprintable) as error:
            return {"invalid": str(error)}
        return self._try(built, arguments, note, folder)

    def _rebuild(self, arguments: Mapping[str, Any]) -> Rebuilt:
        path = Path(self.setup.directory) / _SKELETON
        skeleton = Skeleton.from_json(json.loads(path.read_text()))
        candidate = Candidate.from_json(skeleton, arguments["candidate"])
        return rebuild(self._loaded(), candidate, self._values())

    def _try(
        self, run: Rebuilt, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        """Compile, load, run and compare, noting each stage before it begins."""
        judge = _Judge(run, arguments)
        if arguments.get("reference", True):
            note(Stage.EAGER)
            judge.run_eager()
        note(Stage.COMPILE)
        options = dict(self.setup.inductor)
        if arguments.get("fallback_random"):
            options["fallback_random"] = True
        package = aoti.build(run.exported, folder, options)
        note(Stage.LOAD)
        compiled = aoti.load(package)
        note(Stage.RUN)
        actual = call(compiled, run.failing)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        note(Stage.COMPARE)
        answer = judge.compare(actual)
        # A corrupt heap may only show when what was allocated is freed.
        del compiled, actual
        gc.collect()
        note(Stage.DONE)
        return answer

    def _write(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        note(Stage.REBUILD)
        built = self._rebuild(arguments)
        exported = built.exported
        torch.export.save(exported, arguments["path"])
        try:
            source, unprintable = print_program(built).to_json(), ""
        except Unprintable as error:
            source, unprintable = {}, str(error)
        torch.save(long_values(built), arguments["data"])
        note(Stage.DONE)
        return {
            "source": source,
            "unprintable": unprintable,
            "operators": count_operators(exported.graph_module),
            "nodes": len(exported.graph.nodes),
            "inputs": count_inputs(exported),
            "dynamic_dims": dynamic_dims(exported),
            "targets": sorted(
                {str(n.target) for n in exported.graph.nodes if n.op == "call_function"}
            ),
            "random": is_random(exported),
        }

    def _script(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        path, home = arguments["path"], arguments["cwd"]
        os.chdir(home)
        note(Stage.RUN)
        sys.argv = [path]
        runpy.run_path(path, run_name="__main__")
        note(Stage.DONE)
        return {}


class _Judge:
    """Eager's side of a check: what the compiled program must give."""

    def __init__(self, run: Rebuilt, arguments: Mapping[str, Any]) -> None:
        self._run = run
        random = is_random(run.exported) and not arguments.get("fallback_random")
        self._random = random
        self._expected: list[Any] | None = None
        self._again: list[Any] = []

    def run_eager(self) -> None:
        module = self._run.exported.module(check_guards=False)
        self._expected = call(module, self._run.failing)
        module = self._run.exported.module(check_guards=False)
        self._again = call(module, self._run.failing)

    def compare(self, actual: list[Any]) -> dict[str, Any]:
        if self._expected is None:
            return {}
        difference = compare(
            actual,
            self._expected,
            self._again,
            lambda: in_float64(self._run.exported, self._run.failing),
            values=not self._random,
        )
        answer: dict[str, Any] = {"difference": difference} if difference else {}
        return {**answer, "values_compared": not self._random}


def is_random(exported: ExportedProgram) -> bool:
    """Tell whether an operator draws random numbers."""
    for module in exported.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            tags = getattr(node.target, "tags", ())
            if torch.Tag.nondeterministic_seeded in tags:
                return True
    return False


def count_inputs(exported: ExportedProgram) -> int:
    return len(exported.graph_signature.user_inputs)


def dynamic_dims(exported: ExportedProgram) -> int:
    """Count the dims of inputs that are not fixed."""
    names = set(exported.graph_signature.user_inputs)
    return sum(
        isinstance(size, torch.SymInt)
        for node in exported.graph.nodes
        if node.op == "placeholder" and node.name in names
        for size in getattr(node.meta.get("val"), "shape", ())
    )
