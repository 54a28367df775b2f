"""Find the kernel in the input program that has the same failure.

In the input program, other operators are fused into the kernel, and the sizes differ.
The input program is compiled and run once for this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx.explain.chain import read_compiled_view
from shrinkfx.explain.compiled_view import CompiledView
from shrinkfx.explain.operators import list_operators
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.signature import Stage
from shrinkfx.findings.operators import Operator
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build, CandidateForm
from shrinkfx.system import scratch

WHAT = "the input program's kernel"
_TRITON = "@triton.jit"


@dataclass(frozen=True)
class OriginalKernels:
    """The kernels of the input program that are related to its failure.

    Attributes:
        files: their code by file name, each with a comment that describes it.
        why_not: why there are none, or ''.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    why_not: str = ""


NOT_REQUESTED = OriginalKernels(why_not=f"{WHAT}: not requested")


def find_original_kernels(
    reduced: ReducedProgram, culprits: Collection[Operator]
) -> OriginalKernels:
    """Find the failing kernel in the input program, or the kernels of the culprits.

    If the culprit operators have no kernel, the kernels of all operators of the reduced
    program are returned.

    Args:
        culprits: the culprit operators, as far as they are known.
    """
    found = _find(reduced, culprits)
    if isinstance(found, str):
        return OriginalKernels(why_not=f"{WHAT}: {found}")
    return OriginalKernels(found)


def _find(
    reduced: ReducedProgram, culprits: Collection[Operator]
) -> dict[str, str] | str:
    """Return the files, or why there are none."""
    input_program = Candidate.from_skeleton(reduced.candidate.skeleton)
    if reduced.candidate == input_program:
        return "the reduced program is the input program"
    reduced.note("explain: finding the kernel in the input program")
    original = replace(reduced, candidate=input_program)
    form = CandidateForm.PROGRAM
    with scratch.make_scratch_folder("original") as folder:
        ending = original.ask(compiled_view=folder, form=form, build=Build.FAST)
        if why := original.why_not(ending):
            return why
        view = read_compiled_view(original, Path(folder))
    if isinstance(view, str):
        return view
    remaining = list_operators(reduced.candidate)
    files = _failing(original, view)
    files = files or _computing(view, culprits) or _computing(view, remaining)
    return files or "no kernel was generated for the remaining operators"


def _failing(original: ReducedProgram, view: CompiledView) -> dict[str, str]:
    """Return the kernel that was running when the input program failed, if known."""
    finding = view.recorded.out_of_bounds
    name = finding.kernel if finding else ""
    if not name and original.target.stage is Stage.RUN:
        name = view.kernel_log.last
    place = view.launch_of(name) if name else None
    which = f", launch {place[0] + 1} of {len(view.recorded.launches)}" if place else ""
    return dict(_file(view, name, f"{WHAT} that fails{which}"))


def _computing(view: CompiledView, some: Collection[Operator]) -> dict[str, str]:
    """Return the kernels that compute some operators."""
    files: dict[str, str] = {}
    launches = view.recorded.launches
    for place, launch in enumerate(launches, 1):
        computed = ", ".join(str(one) for one in some if one.name in launch.nodes)
        if computed:
            what = f"{WHAT} for {computed}, launch {place} of {len(launches)}"
            for name, text in _file(view, launch.kernel, what):
                files.setdefault(name, text)
    return files


def _file(view: CompiledView, name: str, what: str) -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of a generated kernel."""
    kernel = view.recorded.kernel(name)
    if kernel is not None:
        triton = _TRITON in kernel.text
        ending, mark = ("py", "#") if triton else ("cpp", "//")
        yield f"{name}.{ending}", f"{mark} {what}\n{kernel.text}\n"
