"""Inspect the environment for ``shrinkfx doctor``, in a worker without a program.

Each function that makes a row names one part. To add a part, add a function here and
its call in ``inspect``.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from shrinkfx.failure.signature import Stage
from shrinkfx.protocol.answers import Done
from shrinkfx.protocol.descriptions import Inspected, Row, Status
from shrinkfx.protocol.tasks import ExportSample
from shrinkfx.torch_versions import RANGE
from shrinkfx.worker.cuda_memory import sanitizer
from shrinkfx.worker.forkserver.supervise import Note
from shrinkfx.worker.loading import gpus
from shrinkfx.worker.loading.import_advice import (
    PTXAS_FROM,
    ptxas_version,
    summarize_error,
    triton_version,
)
from shrinkfx.worker.private_api import FEATURES


class _Sample(torch.nn.Module):
    """A program of two operators, which Inductor fuses into one kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + 1.0


def export_sample(task: ExportSample, note: Note) -> Done:
    """Export a program of two operators, and save it."""
    note(Stage.EAGER)
    exported = torch.export.export(_Sample(), (torch.linspace(-1.0, 1.0, 64),))
    torch.export.save(exported, Path(task.path))
    note(Stage.DONE)
    return Done()


def inspect() -> Inspected:
    """Return the rows of the parts that need no program."""
    triton = _triton()
    others = _ptxas(triton), _gpu(), _compute_sanitizer()
    return Inspected((triton, *others, *_private_names()))


def _private_names() -> list[Row]:
    """Make a row for each feature that lacks a name, or one row if none does."""
    part, remedy = "private names of PyTorch", f"Install torch {RANGE}."
    return [
        Row(part, Status.MISSING, each.missing, _sentence(each.without), remedy)
        for each in FEATURES
        if each.missing
    ] or [
        Row(
            part, Status.WORKS, "this PyTorch has every private name that shrinkfx uses"
        )
    ]


def _tool(
    part: str,
    get_version: Callable[[], str],
    absent: type[Exception],
    cost: str,
    remedy: str,
) -> Row:
    """Make the row of a tool, with its version or its failure.

    Args:
        get_version: returns the version of the tool.
        absent: the exception that ``get_version`` raises if the tool is not installed.
    """
    try:
        return Row(part, Status.WORKS, get_version())
    except absent as error:
        return Row(part, Status.MISSING, summarize_error(error), cost, remedy)
    except Exception as error:  # noqa: BLE001 - any other error: it is broken
        return Row(part, Status.BROKEN, summarize_error(error), cost, remedy)


def _triton() -> Row:
    cost = "CUDA programs cannot be compiled; CPU programs do not need Triton."
    remedy = f"Run {sys.executable} -m pip install triton."
    return _tool("Triton", triton_version, ModuleNotFoundError, cost, remedy)


def _ptxas(triton: Row) -> Row:
    if not triton.works:
        return Row("ptxas", Status.NOT_TRIED, "needs Triton: see that row")
    cost = "CUDA programs cannot be compiled."
    return _tool("ptxas", ptxas_version, RuntimeError, cost, _sentence(PTXAS_FROM))


def _gpu() -> Row:
    if torch.cuda.is_available():
        return Row("GPU", Status.WORKS, gpus.describe_gpu(0, gpus.gpu_properties(0)))
    cuda = torch.version.cuda
    built = f"torch is built for CUDA {cuda}" if cuda else "torch is built without CUDA"
    smi = shutil.which("nvidia-smi") or "not on the PATH"
    return Row(
        "GPU",
        Status.MISSING,
        f"{gpus.describe_gpu_count()}; {built}; nvidia-smi: {smi}",
        "CUDA programs are checked on Triton's interpreter, which detects no races "
        "and runs no kernels of libraries.",
        "Run shrinkfx on a machine with an NVIDIA GPU and its driver"
        + (", and with a torch that is built for CUDA." if not cuda else "."),
    )


def _compute_sanitizer() -> Row:
    part = "compute-sanitizer"
    try:
        found, *_ = sanitizer.command("memcheck")
    except sanitizer.CannotSanitize as error:
        seen, _, remedy = str(error).partition(": ")
        cost = (
            "On a GPU, a repro does not name the kernel of an illegal access, and "
            "races are not found."
        )
        return Row(part, Status.MISSING, seen, cost, _sentence(remedy))
    return Row(part, Status.WORKS, found)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
