"""The user's own test in place of the built-in check: ``--check CMD``."""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from shrinkfx.check.limits import UNLIMITED, Allowance
from shrinkfx.check.oracle import CheckClient, with_times_of
from shrinkfx.errors import BudgetExhausted, NotReproducible, UsageError
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation, Verdict, judge
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import cut_text
from shrinkfx.protocol.requests import RunCommand, SaveCandidate
from shrinkfx.system import scratch

PROGRAM, INPUTS = "{}", "{inputs}"
"""Placeholders for paths in a command line."""

SKIP = 125
"""Exit status for an unresolved candidate, as for ``git bisect run``."""


@dataclass(frozen=True)
class Command:
    """Runs the user's command on programs, each time in a process of its own.

    Exit status 0 means that the program still fails.

    Attributes:
        text: the command line; ``{}`` stands for the path of a ``.pt2``, and
            ``{inputs}`` for the path of the inputs that it fails on, a ``torch.save``d
            tuple.
        cwd: the working directory; '' for the current one.
    """

    text: str
    cwd: str = ""

    @classmethod
    def parse(cls, text: str, cwd: Path | None = None) -> Command:
        """Check a command line.

        Raises:
            UsageError: it cannot be split, or has no placeholder for the path.
        """
        flag = f"--check {shlex.quote(text)}"
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(flag, f": {error}") from error
        if not any(PROGRAM in word for word in words):
            example = "--check './still_fails.sh {}'"
            reason = f": the command lacks {PROGRAM} for the candidate's path, as in "
            raise UsageError(flag, reason, example)
        return cls(text, str(cwd or ""))

    @property
    def takes_inputs(self) -> bool:
        return INPUTS in self.text

    @property
    def target(self) -> Signature:
        """The failure that a check by this command looks for."""
        text = f"'{self.text}' exits with status 0"
        return Signature(Kind.CHECK, Stage.RUN, "", text)

    def run(
        self, client: CheckClient, program: Path, inputs: Path | None
    ) -> Observation:
        """Run the command on a program and read its exit status."""
        paths = {PROGRAM: str(program), INPUTS: str(inputs or "")}
        words = []
        for word in shlex.split(self.text):
            for name, path in paths.items():
                word = word.replace(name, path)
            words.append(word)
        ending = client.ask(RunCommand(tuple(words), self.cwd or os.getcwd()))
        seen = classify_ending(ending)
        if error := ending.raised:
            invalid = f"--check: {cut_text(error.message)}"
            return replace(seen, signature=None, invalid=invalid)
        if ending.how != "exit" or seen.unresolved:
            return replace(seen, signature=None)
        if ending.code == SKIP:
            skipped = f"--check exited with {SKIP}: skipped"
            return replace(seen, signature=None, unresolved=skipped)
        return replace(seen, signature=None if ending.code else self.target)


@dataclass(frozen=True)
class CommandOracle:
    """Saves each candidate and runs the command on it."""

    client: CheckClient
    command: Command

    def check(self, candidate: Candidate) -> Verdict:
        verdict = self.answer(candidate)
        self.learn(candidate, verdict)
        return verdict

    def with_client(self, client: CheckClient) -> CommandOracle:
        """Return an oracle that uses another server or other limits."""
        return replace(self, client=client)

    def answer(self, candidate: Candidate) -> Verdict:
        """Return the verdict without learning from it."""
        client = self.client.with_limit_for(candidate)
        with scratch.make_scratch_folder("candidate") as folder:
            program, inputs = Path(folder) / "model.pt2", Path(folder) / "inputs.pt"
            saved = classify_ending(
                client.ask(
                    SaveCandidate(candidate.to_json(), str(program), str(inputs))
                )
            )
            if saved.invalid or saved.unresolved or not inputs.exists():
                if not saved.unresolved:
                    why = saved.invalid or "cannot be saved"
                    saved = replace(saved, invalid=why, signature=None)
                return Verdict(judge(saved, self.command.target), saved)
            seen = self.command.run(client, program, inputs)
        seen = with_times_of(seen, [saved, seen])
        return Verdict(judge(seen, self.command.target), seen)

    def learn(self, candidate: Candidate, verdict: Verdict) -> None:
        """Adapt the time limit to a verdict."""
        self.client.learn(candidate, verdict)


def runs_of(
    command: Command,
    client: CheckClient,
    program: Path,
    inputs: Path | None,
    budget: Allowance = UNLIMITED,
) -> list[Observation]:
    """Run the command on one program as often as a repro is verified.

    It runs at least once, and again only if there is time.
    """
    runs = [command.run(client, program, inputs)]
    _add_runs(runs, command, client, program, inputs, budget)
    return runs


def _add_runs(
    runs: list[Observation],
    command: Command,
    client: CheckClient,
    program: Path,
    inputs: Path | None,
    budget: Allowance,
) -> None:
    with contextlib.suppress(BudgetExhausted):
        while len(runs) < RUNS and budget.has(runs[-1].seconds):
            runs.append(command.run(client, program, inputs))


RUNS = 3


def require_command_failure(
    command: Command,
    client: CheckClient,
    program: Path,
    inputs: Path | None,
    budget: Allowance = UNLIMITED,
) -> float:
    """Run the command on the input program.

    Returns:
        Seconds of the longest run, without waiting for a core.

    Raises:
        NotReproducible: the command does not exit with status 0 each time.
    """
    seen = [command.run(client, program, inputs)]
    budget.keep(seen[0].seconds)
    _add_runs(seen, command, client, program, inputs, budget)
    if not all(command.target.admits(s.signature) for s in seen):
        texts = [_describe(command, s) for s in seen]
        by_hand = command.text.replace(PROGRAM, str(program))
        advice = f"to run the command by hand: {by_hand.replace(INPUTS, str(inputs))}"
        flag = f"--check {command.text}"
        raise NotReproducible(flag, len(seen), texts, advice)
    return max(s.own_seconds for s in seen)


def _describe(command: Command, seen: Observation) -> str:
    if command.target.admits(seen.signature):
        return "exits with status 0: fails as expected"
    why = seen.invalid or seen.unresolved or "exits with another status: does not fail"
    last = cut_text(seen.log.strip().rpartition("\n")[2])
    return f"{why}; last line of its output: {last}" if last else why
