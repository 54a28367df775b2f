"""Run a repro with other interpreters, of other versions of PyTorch: ``--across``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shrinkfx import scratch
from shrinkfx.check.oracle import Asks, Limits
from shrinkfx.errors import UsageError
from shrinkfx.failure.classify import observe
from shrinkfx.failure.readers.script import AT_ITS_END, as_check
from shrinkfx.failure.signature import Signature
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.words import cut
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.requests import Request
from shrinkfx.protocol.tasks import RunCommand
from shrinkfx.wording import Flag


@dataclass(frozen=True)
class Elsewhere:
    """What a repro does with another interpreter.

    Attributes:
        torch: its version of PyTorch, or ''.
        seen: what the repro did, in a line.
        fails: it failed as stated, or at all where nothing is stated; None where that
            cannot be told.
    """

    python: str
    torch: str
    seen: str
    fails: bool | None

    def __str__(self) -> str:
        where = f"torch {self.torch}" if self.torch else self.python
        does = {True: "fails", False: "does otherwise", None: "no answer"}[self.fails]
        if self.fails is False and self.seen == PASSES:
            return f"{where}: passes"
        return f"{where}: {does}: {self.seen}"


PASSES = "passes"


def interpreters(named: Sequence[str]) -> list[str]:
    """Find the interpreters that are named by a path, or as a shell would find them.

    Raises:
        UsageError: there is none.
    """
    found = []
    for name in named:
        path = shutil.which(name)
        if path is None:
            raise UsageError(
                Flag("--across", name),
                ": there is no such interpreter; name the python of an environment "
                "with another PyTorch, as in ",
                Flag("--across", "/envs/2.11/bin/python"),
            )
        # Not resolved: a link is what makes a Python that of its environment.
        found.append(str(Path(path).absolute()))
    return found


@dataclass(frozen=True)
class Others:
    """Runs a repro with other interpreters, each time in an empty folder.

    Attributes:
        server: bare, without variables that tune PyTorch.
        expected: how the repro should fail, or None.
    """

    server: Asks
    limits: Limits
    files: Sequence[Path]
    expected: Signature | None

    def run(self, pythons: Sequence[str]) -> Iterator[Elsewhere]:
        """Run it with each, and say what it did there."""
        for python in pythons:
            asked = self._ask(python, "-c", _ASK_VERSION)
            version = asked.log.strip().rpartition("\n")[2]
            if asked.how != "exit" or asked.code or asked.raised:
                why = cut(version) or f"it ended by {asked.how} {asked.code}"
                yield Elsewhere(python, "", f"does not import torch: {why}", None)
            else:
                yield self._seen(python, version)

    def _seen(self, python: str, version: str) -> Elsewhere:
        script = self.files[0]
        ending = self._ask(python, "-X", "faulthandler", script.name)
        seen = observe(
            as_check(ending, script.read_text(encoding="utf-8"), script.name)
        )
        fails = seen.signature is not None
        if self.expected:
            fails = self.expected.admits(seen.signature)
        says = fails or (seen.tells and not seen.invalid and not _cannot_tell(seen))
        return Elsewhere(python, version, _in_words(seen), fails if says else None)

    def _ask(self, python: str, *arguments: str) -> Ending:
        with scratch.folder("repro") as folder:
            for file in self.files:
                shutil.copy(file, folder)
            # Where this interpreter finds its modules says nothing to another one.
            words = ("env", "-u", "PYTHONPATH", python, *arguments)
            request = Request(
                RunCommand(words, folder),
                timeout_s=self.limits.timeout_s,
                max_rss_bytes=self.limits.max_rss_bytes,
            )
            return self.server.ask(request)


_ASK_VERSION = "import torch; print(torch.__version__)"


def _cannot_tell(seen: Observation) -> bool:
    return seen.signature is None and AT_ITS_END in seen.log


def _in_words(seen: Observation) -> str:
    if seen.signature or seen.invalid or seen.unresolved:
        return seen.in_words
    return f"{AT_ITS_END}nothing checked it" if _cannot_tell(seen) else PASSES
