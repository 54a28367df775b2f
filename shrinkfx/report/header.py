"""What a repro says of itself, in the comment at its top."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from shrinkfx.failure.readers.asan import MemoryReport
from shrinkfx.failure.readers.interpreter import what_need_not_show
from shrinkfx.failure.readers.script import CANNOT_TELL
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.protocol.choices import Guard, InductorOptions


@dataclass(frozen=True)
class About:
    """What the header says.

    Attributes:
        signature: the failure of the result.
        command: the command line that made it, without paths of this machine.
        random: an operator draws random numbers, so both runs need the seed.
        rate: the part of its runs that fail.
        runs: how often the compiled program is run; above 1 for a flaky failure.
        limits: relative and absolute tolerance by output; empty for the usual ones.
        strict: strides must be eager's as well.
        keeps_state: the program changes its buffers or inputs, so it must be
            compiled before eager runs, and each run gets copies of the inputs.
        calls: how often it must be called before it fails.
        passes: it runs on inputs on which it must pass, before those on which it fails.
        interpreted_for: the GPU whose kernels failed on the interpreter, or '' where
            the program itself was run.
        guard: the guard pages beside which it is sure to fail, which a reader lacks.
        plain: what it does without them, or ''.
        memory: what AddressSanitizer says of it.
        warnings: what else may be the cause.
        stopped: what ended the search early, or ''.
        inputs: the file that a user's command takes beside the program, or ''.
    """

    signature: Signature
    command: str
    versions: Mapping[str, str]
    operators: tuple[int, int]
    environment: Mapping[str, str]
    inductor: InductorOptions
    reference: bool
    random: bool
    rate: float = 1.0
    runs: int = 1
    limits: tuple[tuple[float, float], ...] = ()
    strict: bool = False
    keeps_state: bool = False
    calls: int = 1
    passes: bool = False
    interpreted_for: str = ""
    guard: Guard = Guard.OFF
    plain: str = ""
    memory: MemoryReport | None = None
    inputs: str = ""
    warnings: tuple[str, ...] = ()
    stopped: str = ""

    @property
    def guarded(self) -> bool:
        return self.guard is not Guard.OFF

    @property
    def need_not_show(self) -> str:
        """Say what a reader who only runs the script may not see, or ''."""
        if self.guarded:
            return "an illegal access"
        return what_need_not_show(self.signature) if self.interpreted_for else ""


_INTERPRETED = (
    "Verified on Triton's interpreter only, with kernels for {} and no GPU:\n"
    "the failure above is what that observed; a GPU has yet to confirm it."
)
_COMPILED = "Verified by compiling for {} with no GPU: no kernel was run."


def is_of_interpreter(script: str) -> bool:
    """Tell whether a repro's failure was seen on the interpreter, and nowhere else."""
    return bool(
        re.search("^# Verified on Triton's interpreter only", script, re.MULTILINE)
    )


def _without_gpu(about: About) -> list[str]:
    if not about.interpreted_for:
        return []
    compiled = about.signature.kind is Kind.COMPILE_ERROR
    return [(_COMPILED if compiled else _INTERPRETED).format(about.interpreted_for)]


def header(about: About, *remarks: str) -> str:
    signature = about.signature
    before, after = about.operators
    versions = ", ".join(f"{k} {v}" for k, v in about.versions.items())
    by_command = signature.kind is Kind.CHECK
    name = "Program" if by_command else f"{signature.kind} {_place(about)}"
    stage = "--check" if by_command else signature.stage
    lines = [
        f"{name} ({stage}): reduced from {before} operators to {after}.",
        *_stopped(about),
        "",
        *textwrap.wrap(_without_folders(signature.text or signature.detail), 84),
        "",
        *_careful(about),
        *_memory(about),
        "Run:     " + _how_to_run(about),
        "Expect:  " + f"\n{' ' * 9}".join(_expectation(about)),
        f"Failure: {_failure_line(about)}",
        *_plainly(about),
        f"Seen on: {versions}",
        f"Made by: {about.command}",
        *remarks,
        *_without_gpu(about),
        *(
            []
            if about.reference
            else ["Eager fails on the original too; results are not compared."]
        ),
    ]
    rows = "\n".join(lines).splitlines()
    return "\n".join(f"# {row}".rstrip() for row in rows)


def _stopped(about: About) -> list[str]:
    """Say that nobody has looked for anything smaller than this."""
    if not about.stopped:
        return []
    why = about.stopped.partition("\n")[0]
    said = f"The search was stopped early ({why}): fewer operators may fail, too."
    return textwrap.wrap(_without_folders(said), 84)


_GUARDED = " | guard pages "
_FAILURE = re.compile(
    rf"^# Failure: (\S+) \| (\S+) \| ?(.*?)(?:{re.escape(_GUARDED)}(\w+))?$",
    re.MULTILINE,
)


def _failure_line(about: About) -> str:
    """Say it for ``--verify``, which reads this line alone."""
    failure = about.signature
    guarded = f"{_GUARDED}{about.guard}" if about.guarded else ""
    return f"{failure.kind} | {failure.stage} | {failure.detail}{guarded}"


def is_repro(script: str) -> bool:
    """Tell whether a script has this module's header, of whatever failure."""
    return bool(re.search("^# Failure: ", script, re.MULTILINE))


def read_failure(script: str) -> tuple[Signature | None, Guard]:
    """Read off a repro how it fails, and beside which guard pages.

    Returns:
        None for the failure where the header does not say.
    """
    found = _FAILURE.search(script)
    if found is None:
        return None, Guard.OFF
    try:
        failure = Signature(Kind(found[1]), Stage(found[2]), found[3], found[3])
        return failure, Guard(found[4] or Guard.OFF)
    except ValueError:
        return None, Guard.OFF


_UNDER_SANITIZER = r"""under AddressSanitizer, in a folder that may be written to:
  printf '#!/bin/sh\nunset LD_PRELOAD\nexec g++ "$@"' > asan-g++
  printf ' -fsanitize=address -fno-omit-frame-pointer\n' >> asan-g++
  chmod +x asan-g++
  CXX=$PWD/asan-g++ TORCHINDUCTOR_VEC_ISA_OK=1 TORCHINDUCTOR_CACHE_DIR=$PWD/cache \
  ASAN_OPTIONS=detect_leaks=0:redzone=512:handle_segv=2 \
  LD_PRELOAD=$(g++ -print-file-name=libasan.so) python repro.py"""
"""What a reader needs to see an illegal access that has no effect of its own."""


def _place(about: About) -> str:
    """Say whose code fails: what may be the user's own fault is not AOTInductor's."""
    signature = about.signature
    own = [name for name in signature.operators if name.startswith(_OWN)]
    if own:
        return f"in {own[0]}, under AOTInductor"
    return "under AOTInductor" if about.warnings else "in AOTInductor"


_OWN = "user kernel "


def _careful(about: About) -> list[str]:
    """Say what else may be the cause, before anyone blames the compiler."""
    lines = []
    own = any(name.startswith(_OWN) for name in about.signature.operators)
    eager = (
        ("eager launches this kernel, too: the fault may be its own",) if own else ()
    )
    for warning in (*about.warnings, *eager):
        text = _without_folders(f"Careful: {warning}")
        lines += textwrap.wrap(text, 84, subsequent_indent=" " * 9)
    return [*lines, ""] if lines else []


def _how_to_run(about: About) -> str:
    if about.guarded:
        return _UNDER_SANITIZER
    if not about.need_not_show:
        return "python repro.py"
    if about.signature.kind is Kind.IMA:
        return "compute-sanitizer python repro.py, or shrinkfx --verify repro.py"
    return "shrinkfx --verify repro.py (AOTInductor does not look at layouts)"


def _memory(about: About) -> list[str]:
    """Quote AddressSanitizer."""
    if about.memory is None:
        return []
    quoted = f"AddressSanitizer: {about.memory}"
    return [*textwrap.wrap(quoted, 84, subsequent_indent="  "), ""]


def _plainly(about: About) -> list[str]:
    """Say what a reader sees who only runs the script."""
    if not about.plain:
        return []
    seen = f"Plainly: without inaccessible pages beside each tensor: {about.plain}."
    if about.guarded:
        seen += (
            " Verified with such pages: the program reads or writes beyond a tensor, "
            "which need not show without them or AddressSanitizer."
        )
    return textwrap.wrap(_without_folders(seen), 84, subsequent_indent=" " * 9)


def _without_folders(text: str) -> str:
    """Keep the names of files only: a repro names no path of its maker's machine."""
    return re.sub(r"(?<![\w.])/(?:[\w.+-]+/)+", "", text)


def _expectation(about: About) -> list[str]:
    if about.signature.kind is Kind.CHECK:
        beside = [f"{{inputs}} is {about.inputs}."] if about.inputs else []
        said = "it writes repro.pt2, for which the command above exits with 0."
        return [said, *beside]
    flaky = f", in about {about.rate:.2g} of its {about.runs} runs"
    often = flaky if about.runs > 1 else ""
    when = f", in call {about.calls}" if about.calls > 1 else ""
    passes = ["it passes at the sizes of `passing`, and at those of `failing`:"]
    said = f"{_failure(about.signature)}{when}{often};"
    return [*(passes if about.passes else []), said, *_otherwise(about)]


def _otherwise(about: About) -> list[str]:
    """Say what a script does that does not fail."""
    fixed = 'once the bug is fixed it prints "no longer fails" and exits with 0.'
    if not about.reference:
        fixed = "eager refuses such inputs, too, so they may be what is wrong."
    if not about.need_not_show:
        return [fixed]
    plainly = f"run without that, it may come to its end: it exits with {CANNOT_TELL}."
    sure = about.guarded or not about.reference
    return [f"{fixed[:-1]};", plainly] if sure else [plainly]


def _failure(signature: Signature) -> str:
    match signature.kind:
        case Kind.CRASH | Kind.IMA:
            return "the process dies, or raises, with the failure above"
        case Kind.HANG:
            return "it does not end"
        case Kind.OOM:
            return "memory runs out"
        case Kind.MISMATCH | Kind.NAN:
            return "an AssertionError: the compiled result differs from eager's"
        case Kind.ASSERT:
            return "the assertion above, as an exception or an abort"
    return "the error above"
