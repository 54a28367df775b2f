"""Read what a script printed as it ended: a repro run by a bare Python.

The script knows nothing of shrinkfx, so its stage is read off the line it died
in, and its exception off the traceback.
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
    "actual = compiled(": Stage.RUN,
    "torch.testing.assert_close(": Stage.COMPARE,
    "assert not any(born)": Stage.COMPARE,
    "assert all(same)": Stage.COMPARE,
    "raise failures[-1]": Stage.RUN,
    "del actual": Stage.DONE,
    "print(": Stage.DONE,
    "raise SystemExit(": Stage.DONE,
}
"""What a line of a repro must hold for its stage to be known."""

CANNOT_TELL = 125
"""Exit status of a repro that came to its end where its failure need not show: to
``git bisect run``, and to ``--check``, that is neither good nor bad."""

AT_ITS_END = "ran to its end; "
"""What such a repro says first."""

_TRACEBACK = "Traceback (most recent call last):"
_ERROR = re.compile(r"^([A-Za-z_][\w.]*)(?:: ?((?s:.*)))?$")
# faulthandler stops after a hundred frames.
_CUT_SHORT = re.compile(r'^  File "[^"]+", line \d+ in \S+\n  \.\.\.$', re.MULTILINE)
_FRAME = re.compile(r'^\s+File "([^"]+)", line \d+,? in (\S+)', re.MULTILINE)


def as_check(ending: Ending, script: str, name: str = "repro.py") -> Ending:
    """Bring a script's end into the form of a check's end.

    One that came to its end has passed: it says so where it was not checked, too.
    """
    said_so = re.search(f"^{AT_ITS_END}", ending.log, re.MULTILINE)
    if (ending.how, ending.code) == ("exit", CANNOT_TELL) and said_so:
        return dataclasses.replace(ending, code=0, stage=Stage.DONE.value, answer=None)
    stage = _stage(ending.log, script, name)
    answer: Answer | None = None
    if isinstance(ending.answer, Unresolved):
        answer = ending.answer
    if ending.how == "exit" and (ending.code or ending.raised):
        # A fork knows its exception; a bare Python has only printed it.
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
    """Read what of a result is not eager's off the words of a repro's comparison."""
    if "not finite" in message:
        return "nan"
    attribute = _ATTRIBUTE.search(message)
    return attribute[1] or attribute[2] if attribute else "values"


_SAYS_IT_PASSES = 'print("passes at"'


def _has_passed(log: str, script: str) -> bool:
    """Tell whether a script that must pass first has come so far."""
    said = re.search(r"^passes at ", log, re.MULTILINE)
    return _SAYS_IT_PASSES not in script or said is not None


def name_frame(path: str, function: str) -> str:
    """Name a frame as on any machine: ``torch/_inductor/ir.py:freeze``."""
    _, installed, inside = path.rpartition("site-packages/")
    _, is_ours, ours = path.rpartition(_WORKER)
    if is_ours:  # wherever it is installed
        return f"{_WORKER[1:]}{ours}:{function}"
    return f"{inside if installed else Path(path).name}:{function}"


_WORKER = "/shrinkfx/worker/"
_OURS = (_WORKER, "/torch/fx/interpreter.py")
_SHOWN = 12


def frames_of_death(log: str) -> list[str]:
    """List the frames that faulthandler found, the innermost first.

    Those of the worker are left out, with whatever called it: they are the same
    whatever has died.
    """
    _, found, dump = log.rpartition("(most recent call first):\n")
    frames = []
    for line in dump.splitlines() if found else ():
        if not line.startswith("  File ") or any(part in line for part in _OURS):
            break
        frames.append(line.strip())
    return frames[:_SHOWN]


def _stage(log: str, script: str, name: str) -> Stage:
    """Find the module-level line of the script that was running last."""
    frames = re.findall(
        rf'File "[^"]*{re.escape(name)}", line (\d+),? in <module>', log
    )
    if not frames:
        if _CUT_SHORT.search(log):
            return Stage.COMPILE  # nothing else goes so deep
        # Nothing points into the script: it came to its end, or died in native
        # code after its last line.
        return Stage.DONE if "no longer fails" in log else Stage.RUN
    line = script.splitlines()[int(frames[-1]) - 1]
    for call, stage in STAGE_OF_CALL.items():
        if call in line:
            return stage
    return Stage.START


def _error(log: str) -> Raised:
    """Take type, message and frames of the last exception that was printed."""
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
