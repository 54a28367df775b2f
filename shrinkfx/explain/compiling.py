"""Find what the compiler was doing when it failed, or where a compiled program stopped.

The sources are the frames of the exception, the compiler's messages and the records
that the child process has left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from shrinkfx.explain.reduced_program import (
    ReducedProgram,
    find_last_operators,
    select_operators,
)
from shrinkfx.failure.blame import (
    Evidence,
    ended_inside_launch,
    find_reached_launch,
    group_ties,
    is_call,
    rank_suspects,
)
from shrinkfx.failure.readers.compilers import (
    Complaint,
    parse_gcc_error,
    parse_triton_error,
)
from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.findings.code import CodeLine
from shrinkfx.findings.compiling import ENDLESS, StopPoint
from shrinkfx.findings.operators import Operator
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.display_text import first_line
from shrinkfx.protocol.answers import Ending
from shrinkfx.protocol.files import Excerpt, Launch, Traces
from shrinkfx.system import scratch

_PRINTER = {"aot_inductor.debug_intermediate_value_printer": "3"}
"""Prints a line before and after each launch, without values."""

_ELSEWHERE = frozenset({Kind.IMA, Kind.ASSERT, Kind.CHECK_INPUTS, Kind.CHECK})
"""Kinds of run-time failures that another analysis explains."""


PHASES = {
    r"torch/_functorch/.*": "tracing (AOTAutograd)",
    r"torch/(_decomp|_refs|_prims)/.*|torch/_inductor/decomposition.*": (
        "a decomposition"
    ),
    r".*:(_recursive_)?pre_grad_passes": "a pre-grad pass",
    r".*:(_recursive_)?joint_graph_passes": "a joint-graph pass",
    r".*:(_recursive_)?post_grad_passes": "a post-grad pass",
    r"torch/_inductor/graph\.py:(run_node|call_function)": "lowering",
    r"torch/_inductor/graph\.py:(codegen|_update_scheduler)": "scheduling",
    r"torch/_inductor/scheduler\.py:.*": "scheduling",
    r"torch/_inductor/codegen/(cpp_)?wrapper.*": "wrapper code generation",
    r".*:generate_and_run_autotune_block": "benchmarking",
    r"shrinkfx/worker/interpreter/cuda_source\.py:_compile_kernels": ("benchmarking"),
    r"torch/_inductor/codegen/cpp(?!_wrapper).*": "C++ code generation",
    r"torch/_inductor/codegen/(triton|simd).*": "Triton code generation",
    r"torch/_inductor/(cpp_builder|codecache)\.py:(run|_run)_compile_cmd": (
        "C++ compilation"
    ),
    r"torch/_inductor/runtime/triton_heuristics.*": "Triton's compilation",
    r"triton/(compiler|backends)/.*": "Triton's compilation",
}
"""What Inductor does, by a regex of file and function of a frame.

From the outermost to the innermost; the last one that matches a frame counts.
"""


def explain_stop(reduced: ReducedProgram) -> StopPoint | None:
    """Find what was compiled or run when the reduced program failed.

    This compiles the program once. For a failure at run time, each launch is printed.

    Returns:
        None for failures of other kinds.
    """
    target = reduced.target
    if target.stage is Stage.COMPARE or target.kind in _ELSEWHERE:
        return None
    reduced.note("explain: locating the failure")
    ending, traces = _ask(reduced)
    if ending is None or not reduced.fails(ending):
        why = f"where the program stops: {reduced.why_not(ending)}"
        return StopPoint((), "", unknown=(why,))
    if target.stage is Stage.COMPILE:
        stop = _of_compiler(reduced, ending, traces)
    else:
        stop = _of_run(reduced, ending, traces)
    return replace(stop, eager_fails=not reduced.client.options.reference)


def _ask(reduced: ReducedProgram) -> tuple[Ending | None, Traces]:
    options = reduced.client.options
    printing = reduced.target.stage is Stage.RUN and options.probe is None
    inductor = {**options.inductor, **_PRINTER} if printing else options.inductor
    with scratch.make_scratch_folder("evidence") as folder:
        path = Path(folder) / "evidence.json"
        ending = reduced.run_recorded(
            path.parent, evidence=str(path), inductor=inductor
        )
        traces = Traces.from_line(path.read_text()) if path.exists() else Traces()
        return ending, traces


def _of_compiler(reduced: ReducedProgram, ending: Ending, traces: Traces) -> StopPoint:
    raised = ending.raised
    if raised is None:
        culprits = _select_suspects(reduced, ending, traces)
        message = _ended(reduced, ending)
        return StopPoint(culprits, "compilation", message=message, kernel=traces.kernel)
    text = raised.message
    doing = classify_phase(raised.frames) or "compilation"
    complaint: Complaint | None = None
    if _COMPILERS_OWN.search(text):
        if complaint := parse_triton_error(text):
            doing = "Triton's compilation"
        elif complaint := parse_gcc_error(text):
            of_linker = complaint.text.startswith(("undefined", "cannot find"))
            doing = "linking" if of_linker else "C++ compilation"
    kernel = _kernel(complaint, traces)
    launches = [x for x in traces.launches if kernel and x.kernel == kernel]
    nodes = [node for launch in launches for node in launch.nodes]
    culprits = select_operators(reduced.candidate, nodes)
    culprits = culprits or _select_suspects(reduced, ending, traces)
    # The node that PyTorch says was being processed.
    at_work = () if kernel else traces.raised_at[:1]
    return StopPoint(
        culprits=culprits,
        calls=traces.at_work if not kernel else "",
        comes_of=select_operators(reduced.candidate, [n for at in at_work for n in at]),
        doing=doing,
        place="" if complaint else find_innermost_function(raised.frames),
        message=complaint.text if complaint else _extract_first_line(raised.type, text),
        kernel=kernel,
        code=quote_error_lines(complaint, traces.excerpt) if complaint else (),
        file=Path(complaint.file).name if complaint else "",
    )


_COMPILERS_OWN = re.compile(r"CppCompileError|C\+\+ compile error|\bat \d+:\d+:\n")


def _extract_first_line(kind: str, text: str) -> str:
    """Return the first line of an error, or the type if there is no message."""
    line = first_line(text).removeprefix("LoweringException: ").rstrip(": ")
    if _KIND.fullmatch(line or kind):
        return f"{line or kind} without a message"
    return line


_KIND = re.compile(r"[\w.]*(?:Error|Exception)")


def classify_phase(frames: Sequence[str]) -> str:
    """Return what was being done, from an exception's frames, outermost first."""
    for frame in reversed(frames):
        for pattern, doing in reversed(PHASES.items()):
            if re.fullmatch(pattern, frame):
                return doing
    return ""


_HELPERS = re.compile(
    r"(?:contextlib|functools)\.py:|/python:|torch/_ops\.py:|torch/_inductor/graph\.py:"
    r"|torch/_inductor/lowering\.py:wrapped|torch/utils/|torch/_compile\.py:"
)


def find_innermost_function(frames: Sequence[str]) -> str:
    """Return the innermost function that is not a helper: Inductor's or the user's."""
    for frame in reversed(frames):
        if frame.startswith("shrinkfx/"):  # emulates Inductor where there is no GPU
            return ""
        if not _HELPERS.match(frame):
            return frame.rpartition("/")[2] if frame.startswith("/") else frame
    return ""


def _kernel(complaint: Complaint | None, traces: Traces) -> str:
    """Return the kernel that was being compiled."""
    names = [
        traces.kernel,
        complaint.function if complaint else "",
        traces.excerpt.function if traces.excerpt else "",
    ]
    kernels = {launch.kernel for launch in traces.launches}
    known = [name for name in names if name in kernels]
    # A name with '::' is a method of the wrapper; kernels are free functions.
    functions = [name for name in names if name and "::" not in name]
    return next(iter([*known, *functions]), "")


_SURE = 0.8
"""Minimum weight of a suspect for a statement; weaker ones are hints."""


def _select_suspects(
    reduced: ReducedProgram, ending: Ending, traces: Traces
) -> tuple[Operator, ...]:
    """Return the surest suspects in the reduced program, or its only operator."""
    candidate = reduced.candidate
    if len(candidate.keep) == 1:
        return select_operators(candidate, candidate.keep)
    evidence = Evidence.from_traces(traces)
    evidence = replace(evidence, text=evidence.text or ending.log)
    ranked = rank_suspects(evidence, candidate.skeleton, reduced.target)
    remaining = [suspect for suspect in ranked if suspect.node in candidate.keep]
    if not remaining or remaining[0].weight < _SURE:
        return ()
    return select_operators(
        candidate, [suspect.node for suspect in group_ties(remaining)[0].members]
    )


_AROUND = 3
"""Maximum number of quoted lines before and after the failing one."""


def quote_error_lines(
    complaint: Complaint, excerpt: Excerpt | None
) -> tuple[CodeLine, ...]:
    """Quote the lines around the error, with the compiler's mark."""
    if excerpt is not None:
        numbered = enumerate(excerpt.lines, excerpt.first)
        column = complaint.column
        below = " " * (column - 1) + "^" if column else ""
        at, mark = excerpt.line, complaint.caret or below
    else:
        first = complaint.line - len(complaint.code) + 1
        numbered = enumerate(complaint.code, first)
        at, mark = complaint.line, complaint.caret
    return tuple(
        CodeLine(n, text, n == at, mark if n == at else "")
        for n, text in numbered
        if abs(n - at) <= _AROUND
    )


_DOING = {
    Kind.HANG: "the run",
    Kind.OOM: "memory allocation",
    Kind.LOAD_ERROR: "loading",
}


_UNPACKS = re.compile(r"torch/utils/_pytree\.py:tree_unflatten$")
"""The frame of an error that the package raises after the compiled code."""


def _of_run(reduced: ReducedProgram, ending: Ending, traces: Traces) -> StopPoint:
    """Find what was running, from the last launch that was printed."""
    place = find_reached_launch(
        [launch.kernel for launch in traces.launches], ending.log
    )
    if ending.raised and any(map(_UNPACKS.match, ending.raised.frames)):
        return StopPoint(
            (),
            "unpacking the results of the compiled program",
            message=_ended(reduced, ending),
        )
    launch = traces.launches[place] if place is not None else None
    inside = launch is not None and ended_inside_launch(ending.log)
    culprits = _computed_by(reduced.candidate, launch) if launch and inside else ()
    return StopPoint(
        culprits=culprits or _select_suspects(reduced, ending, traces),
        doing=_DOING.get(reduced.target.kind, "the run"),
        message=_ended(reduced, ending),
        kernel=launch.kernel if launch else "",
        launch=0 if place is None else place + 1,
        launches=len(traces.launches),
        before=launch is not None and not inside,
    )


def _computed_by(candidate: Candidate, launch: Launch) -> tuple[Operator, ...]:
    """Return the operators of a launch; for a call, without its operands' producers."""
    among = find_last_operators if is_call(launch.kernel) else select_operators
    return among(candidate, launch.nodes)


def _ended(reduced: ReducedProgram, ending: Ending) -> str:
    if reduced.target.kind is Kind.HANG:
        limit_s = reduced.client.limits.timeout_s
        return f"it {ENDLESS} within {limit_s:.0f} s; why is not known"
    if (raised := ending.raised) is not None:
        return reduced.target.text or _extract_first_line(raised.type, raised.message)
    message = reduced.target.text or f"{ending.how} {ending.code}"
    return f"{message}; why is not known"
