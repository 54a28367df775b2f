"""Convert the ending of a repro, run by a bare Python, to the ending of a check.

A repro does not use shrinkfx, so its stage is derived from the line at which it died,
and its exception from the traceback.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.answers import (
    Answer,
    Checked,
    Difference,
    Ending,
    Raised,
    Unresolved,
)

STAGE_OF_CALL = {
    "torch.export.": Stage.REBUILD,
    "expected = model(": Stage.EAGER,
    "aoti_compile_and_package(": Stage.COMPILE,
    "aoti_load_package(": Stage.LOAD,
    "compiled(": Stage.RUN,
    "torch.compile(": Stage.RUN,
    "torch.testing.assert_close(": Stage.COMPARE,
    "assert not any(born)": Stage.COMPARE,
    "assert all(same)": Stage.COMPARE,
    "raise failures[-1]": Stage.RUN,
    "del actual": Stage.DONE,
    "print(": Stage.DONE,
    "raise SystemExit(": Stage.DONE,
}
"""Text of a line in a repro -> the stage of this line."""

_COMPILES_AT_CALL = re.compile(
    r'File "[^"]*/torch/(?:_dynamo/convert_frame|_inductor/compile_fx)\.py", line'
    r"|^torch\._(?:dynamo|inductor)\.exc\.",
    re.MULTILINE,
)
"""A frame or an exception of Dynamo, which compiles a program at its first call."""

CANNOT_TELL = 125
"""Exit status of a repro that ended where its failure may not show.

For ``git bisect run`` and for ``--check``, this status is neither good nor bad.
"""

RAN_TO_END_PREFIX = "ran to its end; "
"""The first words in the output of such a repro."""

_TRACEBACK = "Traceback (most recent call last):"
_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(?:: ?((?s:.*)))?$")
# faulthandler stops after a hundred frames.
_CUT_SHORT = re.compile(r'^  File "[^"]+", line \d+ in \S+\n  \.\.\.$', re.MULTILINE)
_FRAME = re.compile(r'^\s+File "([^"]+)", line \d+,? in (\S+)', re.MULTILINE)


def convert_script_ending(
    ending: Ending, script: str, name: str = "repro.py"
) -> Ending:
    """Convert the ending of a script to the ending of a check.

    A script that reached its end has passed, even if it reports that nothing was
    checked.
    """
    completed = re.search(f"^{RAN_TO_END_PREFIX}", ending.log, re.MULTILINE)
    if (ending.how, ending.code) == ("exit", CANNOT_TELL) and completed:
        return dataclasses.replace(ending, code=0, stage=Stage.DONE.value, answer=None)
    stage = _stage(ending.log, script, name)
    answer: Answer | None = None
    if isinstance(ending.answer, Unresolved):
        answer = ending.answer
    if ending.how == "exit" and (ending.code or ending.raised):
        # A fork reports its exception; a bare Python only prints it.
        error = ending.raised or _error(ending.log)
        if stage is Stage.COMPARE and error.type == "AssertionError":
            message = error.message.strip()
            answer = Checked(Difference(_what_differs(message), message))
        elif error.type:
            answer = error
    if stage in (Stage.RUN, Stage.COMPARE) and not _has_passed(ending.log, script):
        stage = Stage.PASSING
    return dataclasses.replace(ending, stage=stage.value, answer=answer)


_ATTRIBUTE = re.compile(
    r"^The values for attribute '(\w+)' do not match|^(strides) ", re.MULTILINE
)


def _what_differs(message: str) -> str:
    """Return which property differs, from the message of a repro's comparison."""
    if "not finite" in message:
        return "nan"
    attribute = _ATTRIBUTE.search(message)
    return attribute[1] or attribute[2] if attribute else "values"


_PASSING_PRINT = 'print("passes at"'


def _has_passed(log: str, script: str) -> bool:
    """Return whether a script with a call that must pass got past this call."""
    passed = re.search(r"^passes at ", log, re.MULTILINE)
    return _PASSING_PRINT not in script or passed is not None


def name_frame(path: str, function: str) -> str:
    """Return a portable frame name, such as ``torch/_inductor/ir.py:freeze``."""
    _, installed, inside = path.rpartition("site-packages/")
    _, is_worker, module = path.rpartition(_WORKER)
    if is_worker:  # wherever it is installed
        return f"{_WORKER[1:]}{module}:{function}"
    return f"{inside if installed else Path(path).name}:{function}"


_WORKER = "/shrinkfx/worker/"
_INTERNAL = (_WORKER, "/torch/fx/interpreter.py")
_SHOWN = 12


def frames_of_death(log: str) -> list[str]:
    """List the frames that faulthandler dumped, innermost first.

    Frames of the worker and of its callers are left out, because they are the same for
    every death.
    """
    _, heading, dump = log.rpartition("(most recent call first):\n")
    frames = []
    for line in dump.splitlines() if heading else ():
        if not line.startswith("  File ") or any(part in line for part in _INTERNAL):
            break
        frames.append(line.strip())
    return frames[:_SHOWN]


def _stage(log: str, script: str, name: str) -> Stage:
    """Return the stage of the module-level line that the script was running last."""
    frames = re.findall(
        rf'File "[^"]*{re.escape(name)}", line (\d+),? in <module>', log
    )
    if not frames:
        if _CUT_SHORT.search(log):
            return Stage.COMPILE  # no other stage has such a deep stack
        # No frame is in the script: it reached its end, or it died in native code after
        # its last line.
        return Stage.DONE if "no longer fails" in log else Stage.RUN
    line = script.splitlines()[int(frames[-1]) - 1]
    for call, stage in STAGE_OF_CALL.items():
        if call in line:
            compiles = stage is Stage.RUN and _COMPILES_AT_CALL.search(log)
            return Stage.COMPILE if compiles else stage
    return Stage.START


def _error(log: str) -> Raised:
    """Parse type, message and frames of the last printed exception."""
    last = log.rpartition(_TRACEBACK)[2]
    frames = []
    for path, function in _FRAME.findall(last):
        frames.append(name_frame(path, function))
    lines = last.splitlines()
    start = next((i for i, s in enumerate(lines) if s and not s.startswith(" ")), None)
    if start is None:
        return Raised("", "", tuple(frames))
    found = _ERROR.match("\n".join(lines[start:]))
    kind, message = (found[1], found[2] or "") if found else ("Exception", lines[start])
    return Raised(kind.rpartition(".")[2], message, tuple(frames))


def is_repro(script: str) -> bool:
    """Return whether a script has the header of a repro."""
    return bool(re.search("^# Failure: ", script, re.MULTILINE))
