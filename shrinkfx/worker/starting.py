"""The start of a server: the work that is done once, before it forks any child."""

from __future__ import annotations

import gc
import os
import platform
import tempfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import torch

from shrinkfx.errors import LoadError
from shrinkfx.protocol.answers import Ready
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import Setup
from shrinkfx.system.processes import measure_own_cpu_s
from shrinkfx.worker.aoti import backend as aoti
from shrinkfx.worker.aoti.torch_compile import share_user_kernels
from shrinkfx.worker.child_main import AnyWorker
from shrinkfx.worker.cpu_memory import guard_pages
from shrinkfx.worker.cuda_memory import red_zones
from shrinkfx.worker.disk_space import limit_folder_size
from shrinkfx.worker.forkserver import last_words
from shrinkfx.worker.forkserver.supervise import restore_sigchld
from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.loading import devices
from shrinkfx.worker.loading.devices import (
    choose_backend,
    is_for_cuda,
    is_on_gpu,
    wanted_gpu,
)
from shrinkfx.worker.loading.import_advice import (
    advice_on,
    require_triton,
    summarize_error,
)
from shrinkfx.worker.loading.load import limit_cpu_time, load, preload
from shrinkfx.worker.model import Program
from shrinkfx.worker.preloads.files_used import FileRecorder
from shrinkfx.worker.private_api import FOR_CUDA_WITHOUT_GPU, NEEDED, OPTIONAL
from shrinkfx.worker.tasks import Worker

CUDA_ENVIRONMENT = {
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    "CUDA_LAUNCH_BLOCKING": "1",
}
"""Variables that make a CUDA failure deterministic, and raise it at its launch."""


def start(setup: Setup, threads: int) -> tuple[AnyWorker, Ready]:
    """Load and warm up all that children can inherit.

    Args:
        threads: the number of torch threads in a child; the server uses one.
    """
    # Compilers and preloads that are killed leave their files in this folder.
    os.environ.update(aoti.temporary_folder_variables(Path(setup.directory)))
    tempfile.tempdir = None
    with FileRecorder() as recorder:
        files = preload(setup.preloads)
    uninstalled = recorder.collect_files()
    restore_sigchld()  # compilers that were asked for their version and flags
    if setup.gpus and (setup.model is None or is_for_cuda(setup)):
        setup = replace(setup, gpus=devices.select_gpus(setup.gpus))
    setup = replace(setup, backend=choose_backend(setup))
    worker = Worker(setup, threads)
    limit_folder_size(Path(setup.directory), setup.max_disk_bytes)
    for_cuda = is_for_cuda(setup)
    environment = _for_cuda(setup) if for_cuda else {}
    for name, value in environment.items():
        os.environ.setdefault(name, value)  # read when CUDA starts
    for feature in NEEDED:
        feature.require()
    if for_cuda:
        require_triton()
    aoti.warm_up()
    last_words.log_thread_exceptions()
    ignored: list[str] = []
    if not is_on_gpu(setup) and (setup.model or for_cuda):
        devices.hide()
    if setup.backend == Backend.INTERPRETER:
        interpreter.warm_up()
        ignored = interpreter.list_overridden_options(setup.inductor)
    if setup.backend == Backend.INDUCTOR and not setup.max_disk_bytes:
        share_user_kernels(Path(setup.directory))
    gc.freeze()
    # A process that has touched a GPU cannot fork children that do.
    if setup.model and not is_on_gpu(setup):
        worker.program = _load_program(setup)
    versions = {"torch": torch.__version__, "Python": platform.python_version()}
    gpu = ""
    if for_cuda:
        cuda = {"CUDA": torch.version.cuda} if torch.version.cuda else {}
        versions |= {**cuda, "triton": _version("triton")}
        if is_on_gpu(setup):
            index = wanted_gpu(setup)
            known = devices.gpu_properties(index)
            versions, gpu = versions | known, devices.describe_gpu(index, known)
    versions |= {
        "g++": aoti.compiler_version(),
        "on": f"{platform.system()} {platform.machine()}",
    }
    return worker, Ready(
        versions=versions,
        preload_files=files,
        uninstalled_files=uninstalled,
        environment=environment,
        backend=setup.backend,
        for_cuda=for_cuda,
        gpu=gpu,
        ignored_options=tuple(ignored),
        no_guard_pages=_no_guard_pages(is_on_gpu(setup)),
        cpu_seconds=measure_own_cpu_s(),
        missing_features=_missing_features(setup),
    )


def _missing_features(setup: Setup) -> dict[str, str]:
    """Return the features that this run may need and torch lacks, with reasons."""
    for_cuda = setup.backend == Backend.INTERPRETER
    used = (*OPTIONAL, *FOR_CUDA_WITHOUT_GPU) if for_cuda else OPTIONAL
    return {f.name: f"{f.missing}: {f.without}" for f in used if f.missing}


def _load_program(setup: Setup) -> Program:
    """Load the program within the limit of CPU-seconds.

    Raises:
        LoadError: the program cannot be read.
    """
    try:
        with limit_cpu_time(setup.reading_cpu_s):
            return load(setup)
    except LoadError:
        raise
    except Exception as error:
        reason = f"cannot be read: {summarize_error(error)}"
        advice = advice_on(error) or "does torch.export.load read it?"
        raise LoadError(str(setup.model), reason, advice) from error


def _no_guard_pages(on_gpu: bool) -> str:
    """Return why there are no guard pages although they were requested, or ''."""
    if on_gpu and guard_pages.is_requested():
        return red_zones.prepare()
    return guard_pages.why_unavailable()


def _for_cuda(setup: Setup) -> dict[str, str]:
    """Return the variables for CUDA to set, without those that the user has unset."""
    wanted = CUDA_ENVIRONMENT.items()
    return {name: value for name, value in wanted if name not in setup.unset}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
