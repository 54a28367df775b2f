"""Let Inductor and AOTInductor generate CUDA code on a machine without a GPU.

Each patch replaces a function through which PyTorch 2.11 to 2.15 (Triton 3.6 to 3.9)
queries a device. Names that a version does not have are skipped.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.worker import native
from shrinkfx.worker.private_api import cuda_api, graph_api, inductor_api, triton_api

_SMS_AND_MEMORY = {
    "sm_80": ("NVIDIA A100-SXM4-80GB", 108, 85_000_000_000, 40 << 20),
    "sm_90": ("NVIDIA H200", 132, 150_000_000_000, 60 << 20),
    "sm_100": ("NVIDIA B200", 148, 191_000_000_000, 126 << 20),
}
_SHARED_PER_BLOCK = {"sm_80": 166_912, "sm_90": 232_448, "sm_100": 232_448}
"""Opt-in shared memory of a block in bytes; a multiprocessor has 1024 bytes more."""

ARCHITECTURES = tuple(_SMS_AND_MEMORY)
DEFAULT_ARCHITECTURE = "sm_90"


def make_device_properties(arch: str) -> SimpleNamespace:
    """Return what ``torch.cuda.get_device_properties`` returns for such a GPU.

    Raises:
        ValueError: the architecture is unknown.
    """
    if arch not in _SMS_AND_MEMORY:
        known = ", ".join(ARCHITECTURES)
        raise ValueError(f"unknown architecture {arch!r}: one of {known}")
    name, processors, memory, cache = _SMS_AND_MEMORY[arch]
    capability = int(arch.removeprefix("sm_"))
    shared = _SHARED_PER_BLOCK[arch]
    return SimpleNamespace(
        name=name,
        major=capability // 10,
        minor=capability % 10,
        total_memory=memory,
        multi_processor_count=processors,
        L2_cache_size=cache,
        is_integrated=False,
        is_multi_gpu_board=False,
        gcnArchName="",
        regs_per_multiprocessor=65_536,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        warp_size=32,
        shared_memory_per_block=49_152,
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=shared + 1024,
        uuid="none",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
        clock_rate=1_980_000,
        memory_clock_rate=3_201_000,
        memory_bus_width=6144,
    )


class TritonDriver:
    """A Triton driver that compiles for a device and cannot launch kernels."""

    def __init__(self, device: SimpleNamespace) -> None:
        self._device = device
        self.utils = SimpleNamespace(
            load_binary=lambda *_: (1, 1, 32, 0, 1024),
            get_device_properties=self._limits,
        )
        self.launcher_cls = _NoLauncher

    def _limits(self, _: object) -> dict[str, int]:
        return {
            "max_shared_mem": self._device.shared_memory_per_block_optin,
            "max_num_regs": self._device.regs_per_multiprocessor,
            "multiprocessor_count": self._device.multi_processor_count,
            "warpSize": self._device.warp_size,
            "sm_clock_rate": self._device.clock_rate,
            "mem_clock_rate": self._device.memory_clock_rate,
            "mem_bus_width": self._device.memory_bus_width,
        }

    def get_current_target(self) -> Any:
        major, minor = self.get_device_capability()
        return triton_api.GPUTarget("cuda", major * 10 + minor, 32)

    def get_device_capability(self, _: object = 0) -> tuple[int, int]:
        return self._device.major, self._device.minor

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, _: object) -> None:
        return None

    def get_current_stream(self, _: object = None) -> int:
        return 0

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def get_benchmarker(self) -> Any:
        return lambda function, **_: 1.0

    def map_python_to_cpp_type(self, name: str) -> str:
        return name

    @staticmethod
    def is_active() -> bool:
        return True


class _NoLauncher:
    global_scratch_size = profile_scratch_size = 0

    def __init__(self, *_: object) -> None: ...

    def __call__(self, *_: object, **__: object) -> None:
        raise RuntimeError("there is no CUDA device: this kernel cannot be launched")


DEVICE = torch.device("cuda", 0)

CONFIG: InductorOptions = {
    "alignment_asserts_inputs": False,  # 2.15; the inputs are aligned copies
    "autotune_in_subproc": False,
    "benchmark_epilogue_fusion": False,  # before 2.15
    "benchmark_fusion": False,
    "benchmark_template_fusion": False,  # 2.15
    "compile_threads": 1,
    "fx_graph_cache": False,
    "joint_graph_constant_folding": False,  # runs on the device
    "pipeline_max_autotune_gemm": False,
    "shape_padding": False,  # benchmarks real tensors
    "use_static_cuda_launcher": False,  # 2.11
    "use_static_triton_launcher": False,  # 2.13
}
"""Inductor's settings under which it generates code without touching a device."""

_NEWER_NAMES = {"benchmark_epilogue_fusion": "benchmark_template_fusion"}
"""New names by old names: reading an old name warns if the new one exists."""


@contextlib.contextmanager
def fake_cuda(arch: str = DEFAULT_ARCHITECTURE) -> Iterator[None]:
    """Let Inductor see a GPU of this architecture; undo that on exit.

    Raises:
        ValueError: the architecture is unknown.
        CannotBuild: torch has no CUDA device guard, and building one failed.
    """
    device = make_device_properties(arch)
    with contextlib.ExitStack() as stack:
        patch = functools.partial(_patch, stack)
        _patch_device_queries(patch, device, arch)
        _drive_triton(stack, patch, device)
        _clear_device_caches(stack)
        _keep_tensors_fake(patch)
        stack.enter_context(inductor_api.config.patch(dict(list_known_settings())))
        yield


def answer_device_queries(arch: str) -> None:
    """Let a user's operators, which run on CPU tensors, query a GPU from now on."""
    answers = _answers(make_device_properties(arch), arch)
    vars(torch.cuda).update({name: answers[name] for name in _OF_OPERATORS})
    vars(torch.cuda).update(device=_Device)


class _Device(contextlib.nullcontext[None]):
    """A device that is the current one already."""

    idx = 0

    def __init__(self, device: object) -> None:
        super().__init__()


_OF_OPERATORS = (
    *("current_device", "get_device_capability", "get_device_name"),
    *("get_device_properties", "set_device", "synchronize"),
)
"""The device queries and commands of ``torch.cuda`` that operators call."""


Patch = Callable[[Any, str, Any], None]


def _patch(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    create = not hasattr(owner, name)
    stack.enter_context(mock.patch.object(owner, name, value, create=create))


def _patch_device_queries(patch: Patch, device: SimpleNamespace, arch: str) -> None:
    """Patch the device queries of ``torch.cuda`` and of Dynamo's device interface."""
    for name, answer in _answers(device, arch).items():
        patch(torch.cuda, name, answer)
        public = name.lstrip("_") if "exchange" in name else name
        if public in cuda_api.CudaInterface.__dict__:
            patch(cuda_api.CudaInterface, public, staticmethod(answer))
    patch(cuda_api.CudaInterface, "get_raw_stream", staticmethod(lambda _=0: 0))
    worker = cuda_api.CudaInterface.Worker
    patch(worker, "get_device_properties", staticmethod(lambda _=None: device))
    patch(worker, "current_device", staticmethod(lambda: 0))
    patch(cuda_api.C, "_cuda_getCurrentRawStream", lambda _=0: 0)
    if torch.version.cuda is None:
        _build_as_with_cuda(patch)


def _answers(gpu: SimpleNamespace, arch: str) -> dict[str, Callable[..., Any]]:
    """Return functions that answer the queries of ``torch.cuda`` for a GPU."""
    memory = (gpu.total_memory, gpu.total_memory)
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "get_device_properties": lambda device=None: gpu,
        "get_device_name": lambda device=None: gpu.name,
        "get_device_capability": lambda device=None: (gpu.major, gpu.minor),
        "_exchange_device": lambda _: 0,
        "_maybe_exchange_device": lambda _: 0,
        "is_bf16_supported": lambda *_, **__: True,
        "_lazy_init": lambda: None,
        "is_initialized": lambda: False,
        "get_arch_list": lambda: [arch],
        "mem_get_info": lambda _=None: memory,
        "get_rng_state": lambda _=None: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda *_: None,
    }


def _build_as_with_cuda(patch: Patch) -> None:
    from torch.utils import cpp_extension

    register_guard()
    patch(torch.version, "cuda", "13.0")
    if cpp_extension.CUDA_HOME is None:
        home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
        patch(cpp_extension, "CUDA_HOME", home)


def _drive_triton(
    stack: contextlib.ExitStack, patch: Patch, device: SimpleNamespace
) -> None:
    before = getattr(triton_api.driver, "_active", None)
    triton_api.driver.set_active(TritonDriver(device))
    stack.callback(setattr, triton_api.driver, "_active", before)
    patch(cuda_api.triton_helpers, "set_driver_to_gpu", lambda: None)


_MODULES_WITH_DEVICE_CACHES = (
    "torch.utils._triton",
    "torch._inductor.utils",
    "torch._inductor.kernel.mm",
    "torch._inductor.codegen.cuda.cuda_env",
)
"""Modules whose functions cache the results of device queries."""


def _clear_device_caches(stack: contextlib.ExitStack) -> None:
    """Clear caches of device queries, now and when the stack closes."""
    cached: list[Any] = [cuda_api.DeviceProperties.create]
    for name in _MODULES_WITH_DEVICE_CACHES:
        with contextlib.suppress(ImportError):
            cached += vars(importlib.import_module(name)).values()
    for function in cached:
        if clear := getattr(function, "cache_clear", None):
            clear()
            stack.callback(clear)


def _keep_tensors_fake(patch: Patch) -> None:
    """Keep functions that handle CUDA FakeTensors from touching CUDA and memory."""
    patch(graph_api.FakeTensorMode, "avoid_device_init", property(lambda _: True))
    if hasattr(cuda_api.fake_tensor, "init_gpu_context"):
        patch(cuda_api.fake_tensor, "init_gpu_context", lambda _: None)
    original = cuda_api.utils.is_same_tensor

    def is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
        if isinstance(one, graph_api.FakeTensor) or isinstance(
            other, graph_api.FakeTensor
        ):
            return one is other
        return bool(original(one, other))

    for module in (cuda_api.utils, cuda_api.graph):
        patch(module, "is_same_tensor", is_same)
    # AOTInductor writes constants of up to eight elements into its code.
    for name in ("tolist", "item"):
        patch(
            graph_api.FakeTensor,
            name,
            _with_values(getattr(graph_api.FakeTensor, name), name),
        )


def attach_constant(fake: torch.Tensor, real: torch.Tensor) -> None:
    """Attach a small constant's value to its FakeTensor, for code that inlines it."""
    if real.numel() <= _INLINED:
        setattr(fake, _REAL, real.detach().cpu())


def _with_values(method: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """Wrap a FakeTensor's method to return the attached value of a constant.

    Inductor calls the method with dispatch to FakeTensors off when it writes a constant
    into code; the original would access the device there.
    """

    def called(fake: Any) -> Any:
        if not cuda_api.is_key_excluded(_PYTHON):
            return method(fake)  # tracing: a program reads a number off data
        real = getattr(fake, _REAL, None)
        if real is None:
            raise NotImplementedError(NO_VALUE)
        return getattr(real, name)()

    return called


_PYTHON = graph_api.DispatchKey.Python
NO_VALUE = "a FakeTensor has no value"
_INLINED = 8
_REAL = "_value_on_cpu"


def list_known_settings() -> InductorOptions:
    """Return the options of ``CONFIG`` that this Inductor has, each under one name."""

    def is_known(name: str) -> bool:
        renamed = hasattr(inductor_api.config, _NEWER_NAMES.get(name, ""))
        return not renamed and hasattr(inductor_api.config, name)

    return {name: value for name, value in CONFIG.items() if is_known(name)}


@functools.cache
def register_guard() -> None:
    """Register a CUDA device guard in this process, unless torch has one.

    A torch that was built without CUDA has no guard for the device type, and
    AOTAutograd aborts the process where it needs one.

    Raises:
        CannotBuild: the guard could not be built.
    """
    if torch.version.cuda is not None:
        return
    from torch.utils.cpp_extension import include_paths, library_paths

    flags = ["-std=c++20", "-O1", "-shared", "-fPIC"]
    flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    flags += [f"-I{path}" for path in include_paths()]
    flags += [f"-L{path}" for path in library_paths()]
    source = Path(__file__).with_name("cuda_guard.cpp")
    version = Path(torch.__file__).with_name("version.py")
    # ``build`` puts the flags before the source, where the linker would drop c10.
    flags += ["-Wl,--no-as-needed", "-lc10"]
    try:
        library = native.build(source, flags, version, timeout_s=300.0)
    except native.CannotBuild as error:
        raise native.CannotBuild(f"no CUDA device guard: {error}") from error
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
