"""Publish the files that checks left in ``DIR/explain/``, atomically."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx.check.client.orphans import find_tlparse, run_command
from shrinkfx.explain.chain import read_compiled_view
from shrinkfx.explain.compiled_view import CompiledView
from shrinkfx.explain.reduced_program import ReducedProgram, list_operators
from shrinkfx.failure.signature import Stage
from shrinkfx.findings.guide import Guide, LeftFile, Value
from shrinkfx.findings.operators import Operator
from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.choices import Build, CandidateForm
from shrinkfx.protocol.files import ArtifactFile, KernelAlone
from shrinkfx.system import scratch
from shrinkfx.system.atomic_files import draft_of

MOST_BYTES = 64 << 20
"""Maximum size of all files together; the smallest files come first."""

_MARK = ".shrinkfx"
"""A file that marks a folder which shrinkfx may replace."""

_TLPARSE, _TLPARSE_S, _LEAST_S = "tlparse", 120.0, 1.0
_WHAT = {
    ArtifactFile.SOURCES: "generated code of the reduced program",
    ArtifactFile.LOG: "compilation log under TORCH_LOGS=+inductor,output_code",
    ArtifactFile.TRACE: "TORCH_TRACE of the compilation",
    ArtifactFile.INPUTS: "inputs of a kernel, saved before its launch",
    ArtifactFile.ORIGINAL: "the kernel with the same failure in the input program",
    ArtifactFile.KERNEL: "the failing kernel alone, as launched or compiled",
    ArtifactFile.KERNEL_DATA: "the data of that kernel",
    _TLPARSE: "tlparse's report of the trace: open index.html",
}
_BY_HAND = f"tlparse explain/{ArtifactFile.TRACE}/*.log"
_NO_TLPARSE = (
    "tlparse's report: tlparse is not installed (pip install 'shrinkfx[trace]'), then "
    f"{_BY_HAND}"
)


def publish(guide: Guide, home: Path, folder: Path, *, within_s: float) -> Guide:
    """Move the files of child processes from ``home`` into ``folder``, atomically.

    Args:
        within_s: time limit for steps that the user can also run by hand.

    Returns:
        The guide, with a list of the files.
    """
    outputs = home / "left"
    outputs.mkdir(exist_ok=True)
    omitted = [*guide.left_out]
    omitted += _inputs(guide.values, home / "printed", outputs)
    omitted += _report_of_trace(outputs, min(within_s, _TLPARSE_S))
    if folder.exists() and not (folder / _MARK).exists():
        why = f"{folder.name}/: there is one already that shrinkfx has not made"
        return replace(guide, left_out=(why,))
    draft = draft_of(folder)
    shutil.rmtree(draft, ignore_errors=True)
    files: list[LeftFile] = []
    try:
        draft.mkdir(parents=True)
        (draft / _MARK).touch()
        omitted += _copy(outputs, draft, files)
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        return replace(guide, left_out=(f"{folder.name}/: {error}",))
    alone = _alone(outputs / ArtifactFile.KERNEL_RUN)
    if alone is not None and not alone.kernel:
        omitted.append(f"{ArtifactFile.KERNEL}: {alone.output}")
        alone = None
    return replace(
        guide, files=tuple(files), left_out=tuple(omitted), kernel_alone=alone
    )


def read_sources(guide: Guide, folder: Path) -> dict[str, str]:
    """Read the generated code of the reduced program from ``folder``.

    Returns:
        Text by file name in the run's folder, such as ``explain/sources/k.py``.
    """
    names = [file.name for file in guide.files]
    return {
        f"{folder.name}/{name}": (folder / name).read_text(errors="replace")
        for name in names
        if Path(name).parts[0] == ArtifactFile.SOURCES
    }


def _inputs(values: Iterable[Value], saved: Path, dest: Path) -> Iterator[str]:
    """Move the inputs of kernels to the other files, without the memory for results."""
    files = list(saved.rglob("*.pt"))
    moved = 0
    for value in values:
        label = f"before_launch_{value.kernel}_{value.argument}_"
        for path in [path for path in files if label in path.name]:
            (dest / ArtifactFile.INPUTS).mkdir(exist_ok=True)
            shutil.move(
                path, dest / ArtifactFile.INPUTS / f"{value.kernel}-{value.argument}.pt"
            )
            files.remove(path)
            moved += 1
    if not moved and not (dest / ArtifactFile.KERNEL).exists():
        yield "the failing kernel's inputs: no run saved them"


def _report_of_trace(outputs: Path, within_s: float) -> Iterator[str]:
    """Run tlparse on the trace, if it is installed and there is time.

    Yields what is missing, and why.
    """
    traces = sorted((outputs / ArtifactFile.TRACE).glob("*.log"))
    if not traces:
        yield "TORCH_TRACE: nothing was traced"
        return
    command = find_tlparse()
    if command is None:
        yield _NO_TLPARSE
    elif within_s < _LEAST_S:
        yield f"tlparse's report: not enough time left: {_BY_HAND}"
    elif failed := _run_tlparse(command, traces[0], outputs / _TLPARSE, within_s):
        shutil.rmtree(outputs / _TLPARSE, ignore_errors=True)
        yield f"tlparse's report: {failed}"


def _run_tlparse(command: str, trace: Path, out: Path, within_s: float) -> str:
    """Run tlparse; return '' if it succeeds, else the reason."""
    argv = [command, str(trace), "-o", str(out), "--overwrite", "--no-browser"]
    try:
        done = run_command(argv, within_s)
    except subprocess.TimeoutExpired:
        return f"it took more than {within_s:.0f} s: {_BY_HAND}"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return f"it ended with {done.returncode}: {done.stderr.strip()[-200:]}"


def _copy(outputs: Path, draft: Path, files: list[LeftFile]) -> Iterator[str]:
    """Copy files up to the size limit; yield why each other file is omitted."""
    remaining = MOST_BYTES
    paths = [path for path in outputs.rglob("*") if path.is_file()]
    for path in sorted(paths, key=lambda path: (path.stat().st_size, path)):
        name, size = path.relative_to(outputs), path.stat().st_size
        what = _WHAT.get(name.parts[0], "")
        if not what:
            continue
        if size > remaining:
            yield f"{name}: {size} bytes, and all files may have {MOST_BYTES}"
            continue
        remaining -= size
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, draft / name)
        files.append(LeftFile(str(name), size, what))


def _alone(path: Path) -> KernelAlone | None:
    """Read how ``kernel.py`` ended."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return KernelAlone.from_line(path.read_text())
    return None


# Find the kernel in the input program that has the same failure.
#
# In the input program, other operators are fused into the kernel, and the sizes differ.
# The input program is compiled and run once for this.

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
