"""Classify how a child ended as a failure with an identity.

The patterns match messages of PyTorch 2.11 to 2.13, g++ and glibc.
"""

from __future__ import annotations

import re
import signal
from dataclasses import replace

from shrinkfx.failure.readers import device, memory
from shrinkfx.failure.readers.device import classify_finding
from shrinkfx.failure.readers.memory import classify_memory_error
from shrinkfx.failure.readers.threads import (
    find_uncaught_message,
    keep_first_thread_exception,
    lost_exception_text,
    sort_thread_exceptions,
)
from shrinkfx.failure.signature import (
    MEMORY_FAULT,
    Kind,
    Signature,
    Stage,
    normalise,
    normalise_cpp,
)
from shrinkfx.failure.verdict import Observation
from shrinkfx.program.display_text import cut_text, first_line, line_of, short_lines
from shrinkfx.protocol.answers import (
    Checked,
    Difference,
    Ending,
    Invalid,
    Raised,
    Stopped,
    Unresolved,
)

_BOUNDS = re.compile(
    r"index out of bounds|index \S+ is out of bounds|device-side assert"
)
_LAYOUT = re.compile(
    r"expected (?:size \d+==\d+|(?:ndim|dtype) \S+ but got)[^\n]*"
    r"\nError in op: (\S+)"
    # Since torch 2.15.
    r"|Error in op: (\S+)\nExpect the tensor to be \d+ bytes aligned[^\n]*"
)
_ASSERTION = re.compile(
    r"^[^\n]*(?:AOTI_TORCH_CHECK|Runtime assertion|Assertion [`'\"]?[^\n]*failed"
    r"|Expression [^\n]* is False|Expected [^\n]* to be True"
    r"|Expected [^\n]* but received -?\d+$)[^\n]*",
    re.MULTILINE,
)
_BAD_INPUT = re.compile(
    r"put_handles\[\d+\]: ([a-z ]+?)(?: at \d+)?,|(At least one (?:NaN|INF)) in"
)
_LOG_CHARACTERS, _FIRST_CHARACTERS = 16_000, 4_000
# The C++ runner may raise only "API call failed", after it printed the reason.
_API_ERROR = re.compile(r"^(?:Exception in aoti_torch|Error): ([^\n]+)", re.MULTILINE)
# The frame of a Python operator that raised when compiled code called it.
_RAISED_AT = re.compile(r"^At:\n[^\n]*\(\d+\): (\w+)", re.MULTILINE)
_LATE = "the machine is too busy: the check waited {:.0f} of {:.0f} s for a CPU, in {}"
_GPU_FAILED = "the GPU has failed, with any program: {}"
SERVER_DIED = "the worker died in each attempt at this check"
_EAGER_STAGES = frozenset({Stage.START, Stage.REBUILD, Stage.EAGER})
_FAULTS = frozenset({signal.SIGSEGV, signal.SIGBUS})
NO_EXCEPTION_TEXT = (
    "SIGABRT: several threads threw at once, and none printed its exception"
)
"""Detail of a death about which nothing else is known; it matches no other abort."""


def classify_ending(ending: Ending) -> Observation:
    """Convert a child's ending into an observation, without judging it."""
    ending, stage = _shorten_lines(ending), Stage(ending.stage)
    signature = _classify_failure(
        ending, Stage.RUN if stage is Stage.PASSING else stage
    )
    if signature and stage is Stage.PASSING:
        signature = replace(signature, stage=stage)
    answer, built = ending.answer, ending.built
    invalid = cut_text(answer.why) if isinstance(answer, Invalid) else ""
    unresolved = cut_text(answer.why) if isinstance(answer, Unresolved) else ""
    if ending.how in ("timeout", "memory", "cancelled"):
        unresolved = f"{ending.how} in {stage}"
    elif ending.how == "late":
        unresolved = _LATE.format(ending.waited_s, ending.seconds, stage)
    elif ending.how == "server":
        unresolved = SERVER_DIED
    elif ending.how == "lost":
        unresolved = "its exit status is gone: does a preload wait for all processes?"
    elif not unresolved and (refusal := memory.find_sanitizer_refusal(ending.log)):
        unresolved, signature = refusal, None
    elif ending.how == "signal" and ending.code == signal.SIGKILL:
        unresolved, signature = f"killed from outside in {stage}", None
    elif signature and (why := device.find_gpu_failure(_all_output(ending))):
        unresolved, signature = _GPU_FAILED.format(why), None
    if not invalid and stage in _EAGER_STAGES and not unresolved:
        invalid = f"{stage}: {_last_words(ending)}"
    return Observation(
        # A failure before the compiler runs is not a failure of the compiler.
        signature=None if invalid or stage in _EAGER_STAGES else signature,
        invalid=invalid,
        unresolved=unresolved,
        stopped=answer.why if isinstance(answer, Stopped) else "",
        step=built.failing_step if built and stage is Stage.COMPILE else None,
        runs=ending.runs,
        seconds=ending.seconds,
        cpu_seconds=ending.cpu_seconds,
        peak_rss_bytes=ending.peak_rss_bytes,
        log=_cut_log(sort_thread_exceptions(ending.log)),
        waited_s=ending.waited_s,
    )


def _cut_log(log: str) -> str:
    """Leave out the middle of a long log.

    Threads that fault at once dump their frames one after the other, so the text before
    is more informative.
    """
    if len(log) <= _LOG_CHARACTERS:
        return log
    return (
        f"{log[:_FIRST_CHARACTERS]}\n...\n{log[_FIRST_CHARACTERS - _LOG_CHARACTERS :]}"
    )


def _shorten_lines(ending: Ending) -> Ending:
    """Shorten long lines, because some patterns take time quadratic in their length."""
    answer = ending.answer
    if isinstance(answer, Raised):
        answer = replace(answer, message=short_lines(answer.message))
    return replace(ending, log=short_lines(ending.log), answer=answer)


def _classify_failure(ending: Ending, stage: Stage) -> Signature | None:
    if ending.how == "timeout":
        limit_s = round(ending.seconds - ending.waited_s)
        limit = f"{limit_s} s" if limit_s else "the time limit"
        return Signature(Kind.HANG, stage, "", f"did not end within {limit}")
    if ending.how == "memory":
        return Signature(Kind.OOM, stage, "", "grew beyond the memory limit")
    if report := memory.parse_sanitizer_report(ending.log):
        detail = memory.detail(report)
        return Signature(Kind.IMA, _map_to_run_stage(stage), detail, str(report))
    if ending.how == "signal":
        known = _classify_death(
            ending.code, keep_first_thread_exception(ending.log), stage
        )
        if known.kind is Kind.CRASH and lost_exception_text(ending):
            return Signature(
                Kind.CRASH, known.stage, NO_EXCEPTION_TEXT, NO_EXCEPTION_TEXT
            )
        return known
    match ending.answer:
        case Raised() as error:
            return _classify_exception(error, ending.log, stage)
        case Checked(difference=Difference() as difference):
            return _difference(difference)
    if ending.code:
        text = f"exit status {ending.code}"
        return Signature(Kind.EXCEPTION, stage, text, text)
    return None


def _classify_death(number: int, log: str, stage: Stage) -> Signature:
    """Classify a death by a signal; messages that the process wrote take precedence."""
    name = signal.Signals(number).name
    stage = _map_to_run_stage(stage)
    known = (
        _classify_known_message(log, stage)
        if stage is Stage.RUN
        else classify_memory_error(log, stage)
    )
    if known:
        return known
    if number in _FAULTS:
        return Signature(Kind.CRASH, stage, MEMORY_FAULT, name)
    if what := find_uncaught_message(log):
        # Thrown where nothing could catch it: in a thread of a larger program.
        return _exception("RuntimeError", what, stage)
    return Signature(Kind.CRASH, stage, name, name)


def _map_to_run_stage(stage: Stage) -> Stage:
    """Map stages after the run to RUN, because a corrupt heap may show only there."""
    return Stage.RUN if stage in (Stage.COMPARE, Stage.DONE) else stage


def _classify_known_message(text: str, stage: Stage) -> Signature | None:
    """Recognize run-time failures by their messages."""
    if finding := classify_finding(text, stage):
        return finding
    if memory := classify_memory_error(text, stage):
        return memory
    if printed := device.classify_device_assertion(text, stage):
        return printed
    if found := _BOUNDS.search(text):
        line = line_of(text, found)
        return Signature(Kind.ASSERT, stage, "index out of bounds", line)
    if found := _BAD_INPUT.search(text):
        detail = found[1] or found[2]
        return Signature(Kind.CHECK_INPUTS, stage, detail, line_of(text, found))
    if found := _LAYOUT.search(text):
        line = line_of(text, found).replace("\n", ": ")
        what, operator = ("layout", found[1]) if found[1] else ("alignment", found[2])
        kind = Kind.CHECK_INPUTS if operator == "input" else Kind.ASSERT
        return Signature(kind, stage, f"{what} of {operator}", line)
    if found := _ASSERTION.search(text):
        line = line_of(text, found)
        return Signature(Kind.ASSERT, stage, normalise(line), line)
    return None


_WRAPPED = re.compile(r"backend='\w+' raised:\n(\w+): ?((?s:.*))")


def _unwrap(error: Raised) -> Raised:
    """Return the error that Dynamo has wrapped in a repro, or the error itself."""
    is_wrapper = error.type == "BackendCompilerFailed"
    if is_wrapper and (found := _WRAPPED.match(error.message)):
        return replace(error, type=found[1], message=found[2])
    return error


def _classify_exception(error: Raised, log: str, stage: Stage) -> Signature:
    error = _unwrap(error)
    stage, text = _map_to_run_stage(stage), error.message
    if error.type == MemoryError.__name__:
        return Signature(Kind.OOM, stage, "", f"{error.type}: {text}".strip(": "))
    # An exception may only state that a device assertion or a call of the C++ runner
    # failed; the reason was printed before.
    triggered = device.TRIGGERED in text
    output = f"{text}\n{log}" if triggered else text
    if stage is Stage.COMPILE and not triggered:  # else a kernel's benchmark failed
        return classify_finding(text, stage) or classify_compile_error(error)
    if stage is Stage.LOAD:
        return classify_memory_error(text, stage) or _load_error(error)
    if known := _classify_known_message(output, stage) or _classify_known_message(
        log, stage
    ):
        return known
    line = first_line(text)
    if "API call failed" in line and (messages := _API_ERROR.findall(log)):
        line = messages[-1].strip()
    if line.endswith((":", "<EMPTY MESSAGE>")) and (found := _RAISED_AT.search(text)):
        line = f"{line} at {found[1]}"
    return _exception(error.type, line, stage, innermost_torch_frame(error))


def _exception(name: str, line: str, stage: Stage, where: str = "") -> Signature:
    detail = f"{name}: {normalise(line) or where}"
    return Signature(Kind.EXCEPTION, stage, detail, f"{name}: {line}")


def _load_error(error: Raised) -> Signature:
    line = first_line(error.message)
    detail = f"{error.type}: {normalise_cpp(line) or innermost_torch_frame(error)}"
    return Signature(Kind.LOAD_ERROR, Stage.LOAD, detail, f"{error.type}: {line}")


def _difference(difference: Difference) -> Signature:
    """Classify a wrong result.

    Only its kind is part of the identity, because a wrong dtype shows as wrong values
    further down.
    """
    kind = Kind.NAN if difference.what == "nan" else Kind.MISMATCH
    return Signature(
        kind,
        Stage.COMPARE,
        text=difference.text,
        beside_nan=difference.besides == "nan",
        differs="values" if difference.is_of_values else difference.what,
    )


def _all_output(ending: Ending) -> str:
    """Return the message of the child's exception and its log."""
    error = ending.raised
    return f"{error.message}\n{ending.log}" if error else ending.log


def _last_words(ending: Ending) -> str:
    if error := ending.raised:
        return f"{error.type}: {first_line(error.message)}"
    if ending.how == "signal":
        return f"died by {signal.Signals(ending.code).name}"
    return f"ended with status {ending.code}"


_COMPILER_OUT_OF_MEMORY = re.compile(
    r"out of memory allocating|memory exhausted|Cannot allocate memory"
    r"|Killed signal terminated program"
)
_COMPILER = re.compile(r"^[^\n]*?(?:fatal )?error: ([^\n]+)", re.MULTILINE)
_LINKER = re.compile(r"(undefined (?:reference|symbol)[^\n]*|cannot find -l[^\n]*)")
_TRITON = re.compile(r"\bat \d+:\d+:\n.*?\n *\^\n(.+)", re.DOTALL)
_TARGET = re.compile(r"^\s*target: (\S+)", re.MULTILINE)


def classify_compile_error(error: Raised) -> Signature:
    """Classify a compile error by g++'s first ``error:``, else by Inductor's text."""
    message, stage = error.message, Stage.COMPILE
    if "CppCompileError" in message or error.type == "CppCompileError":
        output = message.partition("Output:")[2] or message
        if found := _COMPILER_OUT_OF_MEMORY.search(output):
            return Signature(Kind.OOM, stage, "", line_of(output, found))
        found = _LINKER.search(output) or _COMPILER.search(output)
        text = found[1] if found else first_line(message)
        detail = f"C++: {normalise_cpp(text)}"
        return Signature(Kind.COMPILE_ERROR, stage, detail, text.strip())
    if found := _TRITON.search(message):
        # The message contains the kernel's source before the error.
        line = _innermost_of_triton(found[1])
        text = f"Triton: {line}"
        return Signature(Kind.COMPILE_ERROR, stage, f"Triton: {normalise(line)}", text)
    line = first_line(message)
    if memory := classify_memory_error(line, stage):
        return memory
    # "AssertionError:" with nothing after it, or the dump of a graph, says nothing; the
    # place where it was raised does.
    says_nothing = not line or line.endswith((":", "(", "[", "{"))
    cause = normalise(line)
    if says_nothing:
        cause = f"{line.partition(':')[0]}: {innermost_torch_frame(error)}"
    target = _TARGET.search(message)
    parts = [error.type, cause.strip(), *([target[1]] if target else [])]
    text = f"{error.type}: {line}" + (f" ({target[1]})" if target else "")
    return Signature(Kind.COMPILE_ERROR, stage, " | ".join(parts), text)


def _innermost_of_triton(text: str) -> str:
    """Return the error in the innermost helper function that the kernel calls."""
    while inner := _TRITON.search(text):
        text = inner[1]
    return first_line(text)


def innermost_torch_frame(error: Raised) -> str:
    """Return the innermost frame inside torch, as the identity of an empty message.

    Files of the user are ignored, because they have other names in a repro.
    """
    frames = [f for f in error.frames if f.startswith("torch/")]
    return f"at {frames[-1]}" if frames else ""
