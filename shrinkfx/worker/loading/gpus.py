"""Count and describe the GPUs without creating a CUDA context.

A process with a context cannot fork children that use CUDA. So torch counts GPUs
through NVML (``PYTORCH_NVML_BASED_CUDA_CHECK``, ``torch/cuda/__init__.py``), and
nvidia-smi describes them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

import torch

from shrinkfx.errors import LoadError
from shrinkfx.wording import Flag, MessagePart, MessageText

VISIBLE = "CUDA_VISIBLE_DEVICES"

_PROPERTIES = {
    "GPU": "name",
    "compute capability": "compute_cap",
    "GPU memory": "memory.total",
    "driver": "driver_version",
}
_SMI_S = 20.0
_hidden_values: dict[str, str | None] = {}  # values of variables before ``hide``


def gpu_properties(index: int) -> dict[str, str]:
    """Return properties of a GPU, as far as nvidia-smi reports them.

    Args:
        index: the number N in ``cuda:N``, which counts visible GPUs only.
    """
    gpu_id = visible_name(index, os.environ.get(VISIBLE))
    query = f"--query-gpu={','.join(_PROPERTIES.values())}"
    command = ["nvidia-smi", query, "--format=csv,noheader", "-i", gpu_id]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_SMI_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [word.strip() for word in result.stdout.strip().split(",")]
    if result.returncode or len(values) != len(_PROPERTIES):
        return {}
    known = zip(_PROPERTIES, values, strict=True)
    return {name: word for name, word in known if word and not word.startswith("[")}


def visible_name(index: int, visible: str | None) -> str:
    """Return a GPU's name for nvidia-smi: its number on the machine, or its UUID.

    >>> visible_name(1, None), visible_name(1, "4,6"), visible_name(0, "GPU-12ab")
    ('1', '6', 'GPU-12ab')
    """
    names = visible.split(",") if visible else []
    return names[index].strip() if index < len(names) else str(index)


def describe_gpu(index: int, known: dict[str, str]) -> str:
    """Describe in one line the GPU that a program runs on."""
    visible = os.environ.get(VISIBLE)
    among = f", with {VISIBLE}={visible}" if visible is not None else ""
    return f"{known.get('GPU', 'a GPU')} as cuda:{index}{among}"


def describe_gpu_count() -> str:
    """Describe how many GPUs there are, and which are visible."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    texts = {0: "there is no CUDA device", 1: "there is one CUDA device, cuda:0"}
    many = f"there are {count} CUDA devices, cuda:0 to cuda:{count - 1}"
    description = texts.get(count, many)
    visible = os.environ.get(VISIBLE)
    return description if visible is None else f"{description} ({VISIBLE}={visible!r})"


def require(index: int, model: MessagePart) -> None:
    """Refuse a GPU that does not exist.

    Raises:
        LoadError: there are fewer GPUs; says how many.
    """
    if torch.cuda.is_available() and index < torch.cuda.device_count():
        return
    has_one = torch.cuda.is_available() and torch.cuda.device_count() > 0
    advice = MessageText(
        "say ", Flag("--device", "cuda:0"), ", which moves it to the first"
    )
    if not has_one:
        flag = Flag("--device", "cuda")
        checked = ", and its kernels are checked without a GPU"
        advice = MessageText("say ", flag, checked)
    raise LoadError(
        model,
        f"is to run on cuda:{index}, and {describe_gpu_count()}",
        MessageText(*advice),
    )


def select_gpus(gpus: Sequence[str]) -> tuple[str, ...]:
    """Make only the first of some GPUs visible to this process and its forks.

    Args:
        gpus: their numbers N in ``cuda:N``.

    Returns:
        The name of each GPU, with which ``show_one_gpu`` makes a fork use it.

    Raises:
        LoadError: one of the GPUs does not exist.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for each in gpus:
        if int(each) >= count:
            reason = f"there is no cuda:{each}: {describe_gpu_count()}"
            advice = "number N means cuda:N"
            raise LoadError(Flag("--gpus", ",".join(gpus)), reason, advice)
    visible = os.environ.get(VISIBLE)
    names = tuple(visible_name(int(each), visible) for each in gpus)
    show_one_gpu(names[0])
    return names


def show_one_gpu(gpu: str) -> None:
    """Make only one GPU visible to this process, which must not have a context yet."""
    os.environ[VISIBLE] = gpu


def hide() -> None:
    """Make no GPU visible to this process and its forks.

    PyTorch may initialize CUDA for a CPU program too (``preserve_rng_state`` in
    torch/_dynamo/utils.py), and a process that has done so cannot fork children that
    compile: "Cannot re-initialize CUDA in forked subprocess" (torch 2.11 on an H100).
    """
    _hidden_values.setdefault(VISIBLE, os.environ.get(VISIBLE))
    os.environ[VISIBLE] = ""


def restore_gpus() -> None:
    """Undo ``hide`` in this process, for instance before it runs a user's command."""
    for name, value in _hidden_values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
