"""What a child does: one function per task."""

from __future__ import annotations

import gc
import json
import math
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
from shrinkfx.worker.compare import compare, in_float64, own_error, unstable
from shrinkfx.worker.describe import content_digest, count_operators, describe
from shrinkfx.worker.load import Program, load
from shrinkfx.worker.rebuild import CannotRebuild, Rebuilt, rebuild
from shrinkfx.worker.source import Unprintable, long_values, print_program, run_source
from shrinkfx.worker.supervise import Note
from shrinkfx.worker.values import SEED, Values, call, run_eager

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

    def _cut_from(self, arguments: Mapping[str, Any]) -> tuple[Program, Path]:
        """Choose the graph that candidates are cut from, and its folder."""
        folder = Path(self.setup.directory) / "graph"
        if arguments.get("in_place"):
            return self._loaded().as_exported(), folder.with_name("graph-in-place")
        return self._loaded(), folder

    def _describe(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        program, home = self._cut_from(arguments)
        note(Stage.EAGER)
        error, lies = Values(home, program).record(program)
        content = content_digest(
            self.setup.model, self.setup.inputs, *self.setup.preloads
        )
        skeleton = describe(program, content).to_json()
        path = home / _SKELETON
        path.write_text(json.dumps(skeleton))
        note(Stage.DONE)
        return {
            "skeleton": str(path),
            "eager_error": error,
            "lies": lies,
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
        program, home = self._cut_from(arguments)
        skeleton = Skeleton.from_json(json.loads((home / _SKELETON).read_text()))
        candidate = Candidate.from_json(skeleton, arguments["candidate"])
        built = rebuild(program, candidate, Values(home, program))
        if not built.stale:
            return built
        exported = run_source(print_program(built), built)
        return Rebuilt(exported, built.example, built.failing)

    def _try(
        self, run: Rebuilt, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        """Compile, load, run and compare, noting each stage before it begins."""
        judge = _Judge(run, arguments)
        note(Stage.EAGER)
        judge.run_eager()
        note(Stage.COMPILE)
        options = dict(self.setup.inductor)
        if arguments.get("sanity"):
            os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
            options["nan_asserts"] = True
        if arguments.get("fallback_random"):
            options["fallback_random"] = True
        package = aoti.build_once(
            run.exported, folder, options, arguments.get("package")
        )
        note(Stage.LOAD)
        compiled = aoti.load(package)
        note(Stage.RUN)
        try:
            actual = call(compiled, run.failing)
        except Exception as error:
            if judge.fails_alike(error):
                return {"invalid": f"eager fails in the same way: {error}"}
            raise
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
        if arguments.get("form") == "source":
            # The search's last steps were of the source's program.
            exported = run_source(print_program(built), built)
            built = Rebuilt(exported, built.example, built.failing)
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
            "two_sets": self._loaded().failing is not self._loaded().example,
            "own_error": self._own_error(built),
            "operators": count_operators(exported.graph_module),
            "nodes": len(exported.graph.nodes),
            "inputs": count_inputs(exported),
            "dynamic_dims": dynamic_dims(exported),
            "random": draws_random_numbers(exported),
            "targets": sorted(
                {str(n.target) for n in exported.graph.nodes if n.op == "call_function"}
            ),
        }

    def _own_error(self, built: Rebuilt) -> float:
        """Measure how far eager's results are from a float64 run, at most."""
        try:
            results = run_eager(built.exported, built.failing, seed=SEED)
        except Exception:  # noqa: BLE001 - eager may fail where the original does
            return 0.0
        exact = in_float64(built.exported, built.failing) or results
        errors = [
            own_error(r, e).max().item()
            for r, e in zip(results, exact, strict=True)
            if isinstance(r, torch.Tensor) and r.numel() and r.shape == e.shape
        ]
        return max((e for e in errors if math.isfinite(e)), default=0.0)

    def _script(
        self, arguments: Mapping[str, Any], note: Note, folder: Path
    ) -> dict[str, Any]:
        path, home = arguments["path"], arguments["cwd"]
        os.chdir(home)
        note(Stage.RUN)
        sys.argv = [path]
        sys.path[0] = home  # as for any script
        runpy.run_path(path, run_name="__main__")
        note(Stage.DONE)
        return {}


class _Judge:
    """Eager's side of a check: what the compiled program must give."""

    def __init__(self, run: Rebuilt, arguments: Mapping[str, Any]) -> None:
        self._run = run
        # With another seed, the second run tells which values are random: the
        # compiled program draws other numbers, unless it was told to draw eager's.
        self._second_seed = SEED if arguments.get("fallback_random") else SEED + 1
        self._must_run = bool(arguments.get("reference", True))
        self._expected: list[Any] | None = None
        self._again: list[Any] = []
        self._error = ""

    def run_eager(self) -> None:
        """Run eager twice; where the original fails in eager too, it may fail."""
        exported, inputs = self._run.exported, self._run.failing
        try:
            self._expected = run_eager(exported, inputs, seed=SEED)
            self._again = run_eager(exported, inputs, seed=self._second_seed)
        except Exception as error:
            if self._must_run:
                raise
            self._error = f"{type(error).__name__}: {error}"

    def fails_alike(self, error: Exception) -> bool:
        """Tell whether eager raised the very same: that is no compiler's fault."""
        return self._error == f"{type(error).__name__}: {error}"

    def compare(self, actual: list[Any]) -> dict[str, Any]:
        if self._expected is None or not self._must_run:
            return {}
        difference = compare(
            actual,
            self._expected,
            self._again,
            lambda: in_float64(self._run.exported, self._run.failing),
        )
        answer: dict[str, Any] = {"difference": difference} if difference else {}
        skipped = unstable(self._expected, self._again)
        return {**answer, "values_skipped": skipped}


def draws_random_numbers(exported: ExportedProgram) -> bool:
    """Tell whether an operator may; some, such as attention, need not."""
    return any(
        torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        for node in exported.graph.nodes
    )


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
