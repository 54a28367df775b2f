"""Run the input program at given sizes, with a package that is compiled once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.errors import NotReproducible, UsageError, WorkerError
from shrinkfx.failure.classify import NO_EXCEPTION_TEXT, classify_ending
from shrinkfx.failure.signature import ANY
from shrinkfx.failure.verdict import Observation
from shrinkfx.journal.sweep_journal import SweepJournal
from shrinkfx.options.options import Sweeping
from shrinkfx.program.sizes import Sizes, Space
from shrinkfx.protocol.choices import Backend, Guard, InductorOptions, Probe
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.protocol.tasks import CheckAtSizes, CompileOriginal, SaveInputs
from shrinkfx.run.context import RunContext
from shrinkfx.run.input_failure import has_recorded_failure
from shrinkfx.run.memory_error import wants_guard_pages
from shrinkfx.run.observe import BASELINE_TIMEOUT_S
from shrinkfx.run.recorded_options import digest_inputs
from shrinkfx.sweep.examples import Example, judge_example
from shrinkfx.system.host_memory import estimate_available_bytes
from shrinkfx.wording import Flag, MessageText

EXAMPLES = 200
MAX_ELEMENTS = 1 << 22
_BYTES_PER_ELEMENT = 256
"""Memory that must be available for each element of the largest tensor."""

QUIET_THREADS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait by spinning took 0.16 of the 0.2 CPU-seconds of a small example, on
a machine with other load.
"""

_TIMEOUT_S = 60.0

_TRIES = 8
"""Attempts at sizes if a run ends while compiling, or ``_is_speechless``."""


def _is_speechless(seen: Observation) -> bool:
    """Return whether threads raised an error without a message, alone or at once."""
    return seen.signature is not None and seen.signature.detail == NO_EXCEPTION_TEXT


@dataclass(frozen=True)
class SweepSettings(Message):
    """The settings that all examples of a sweep share.

    Attributes:
        content: a digest of the program and its inputs.
        until: the kind of failure to look for.
        guard_pages: guard pages are wanted; they may not be available.
    """

    content: str
    torch: str
    until: str
    device: str | None
    backend: str
    inductor: InductorOptions
    environment: Mapping[str, str]
    guard_pages: bool
    examples: int
    seed: int
    max_elements: int
    ranges: str


def settings_of(
    context: RunContext, server: Server, journal: SweepJournal
) -> SweepSettings:
    """Return the settings of a sweep: from the options, or recorded ones if it resumes.

    Raises:
        UsageError: the earlier session used another torch or backend.
    """
    options, wanted = context.options, context.options.sweeping or Sweeping()
    free = estimate_available_bytes() // _BYTES_PER_ELEMENT
    settings = SweepSettings(
        content=digest_inputs(options),
        torch=server.ready.versions.get("torch", ""),
        until=options.until or ANY,
        device=options.device,
        backend=server.ready.backend,
        inductor=dict(options.inductor),
        environment=dict(options.environment),
        guard_pages=wants_guard_pages(options),
        examples=EXAMPLES if wanted.examples is None else wanted.examples,
        seed=wanted.seed or 0,
        max_elements=min(
            MAX_ELEMENTS if wanted.max_elements is None else wanted.max_elements, free
        ),
        ranges=wanted.ranges,
    )
    recorded = journal.settings()
    if not recorded:
        journal.begin(settings.to_json())
        return settings
    before = SweepSettings.from_json(recorded)
    for name in ("torch", "backend"):  # other settings come from the same journal
        here, there = getattr(settings, name), getattr(before, name)
        if here != there:
            then = f"{name} {there}, but this is {here}"
            again = Flag("--resume", str(context.out))
            raise UsageError(again, f": that sweep used {then}")
    return before


class ExampleRunner:
    """Runs the program at sizes, with a package that is compiled once.

    The interpreter has no package: it generates code again for each example.
    """

    def __init__(
        self, context: RunContext, server: Server, space: Space, settings: SweepSettings
    ) -> None:
        self.context = context
        self.space = space
        self.compiles = 0
        self._package = str(server.directory / "sweep.pt2")
        self._interprets = server.ready.backend == Backend.INTERPRETER
        self._until = settings.until
        seconds = context.options.timeout_s or _TIMEOUT_S
        limits = Limits(seconds, context.limits(seconds).max_rss_bytes)
        self._seed = settings.seed
        guarded = settings.guard_pages and not server.ready.no_guard_pages
        options = CheckOptions(
            package=None if self._interprets else self._package,
            probe=Probe(context.options.probe) if context.options.probe else None,
            guard_pages=Guard.AFTER if guarded else Guard.OFF,
        )
        options = context.options.compared(options)
        self._client = CheckClient(server, limits, options, context.meters["search"])
        if context.options.probe and not self._interprets:
            message = Flag("--probe"), " only works for CUDA without a GPU: add "
            raise UsageError(*message, Flag("--device", "cuda"))
        if self._interprets:
            context.note("on the interpreter, code is generated again for each example")
            if settings.ranges == "beyond":
                flag = Flag("--beyond-ranges")
                raise UsageError(flag, ": the interpreter does not check ranges")

    def inside(self, sizes: Sizes) -> Example:
        return self._run(sizes, outside=False)

    def outside(self, sizes: Sizes) -> Example:
        """Run sizes outside of the declared ranges; an error counts as a refusal."""
        return self._run(sizes, outside=True)

    def _run(self, sizes: Sizes, *, outside: bool) -> Example:
        self.context.budget.spend()
        named = self.space.named(sizes)
        for _ in range(_TRIES):
            self._compile_once()
            ending = self._client.ask(CheckAtSizes(named, self._seed, outside))
            seen = classify_ending(ending)
            is_over = ending.how in ("timeout", "late")
            lost_package = is_over and not self._is_compiled()
            if not lost_package and not _is_speechless(seen):
                break
        else:
            seen = replace(seen, signature=None, unresolved=NO_EXCEPTION_TEXT)
        return judge_example(sizes, seen, self._until)

    def _compile_once(self) -> None:
        """Compile the program, unless its package exists.

        The package is lost when the server dies, because it is in the
        server's folder.

        Raises:
            NotReproducible: compiling fails.
            WorkerError: compiling fails, but has succeeded before.
        """
        if self._is_compiled():
            return
        self.compiles += 1
        again = self.compiles > 1
        self.context.note(f"compiling the program, {'again' if again else 'once'}")
        limits = self.context.limits(BASELINE_TIMEOUT_S)
        client = self._client.with_limits(limits, self.context.meters["baseline"])
        seen = classify_ending(client.ask(CompileOriginal()))
        reason = str(seen.signature or seen.invalid or seen.unresolved)
        if again and reason:
            raise WorkerError(f"the program compiled before, but now: {reason}")
        if failure := seen.signature:
            until = Flag("--until", str(failure.kind))
            sweep = Flag("--dynamic-sweep")
            advice = MessageText("to reduce that failure: ", until, ", without ", sweep)
            raise NotReproducible(self._until, 1, [str(failure)], advice)
        if reason:
            longer = MessageText("try a longer ", Flag("--timeout"))
            raise NotReproducible(self._until, 1, [reason], longer)

    def _is_compiled(self) -> bool:
        return self._interprets or Path(self._package).exists()

    def save(self, sizes: Sizes, path: Path, passing: Sizes | None = None) -> Path:
        """Write inputs of these sizes to a file for ``--inputs``.

        Args:
            passing: sizes at which a reduced program must pass.
        """
        if path.exists() and has_recorded_failure(self.context.journal):
            return path  # a reduction depends on this file
        named = self.space.named(sizes)
        near = None if passing is None else self.space.named(passing)
        place = str(path.resolve())
        self._client.ask(SaveInputs(named, self._seed, place, near))
        return path
