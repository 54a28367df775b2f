"""The properties of the GPUs that code can be generated for without having one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

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
        from shrinkfx.worker.private_api.triton_api import GPUTarget

        major, minor = self.get_device_capability()
        return GPUTarget("cuda", major * 10 + minor, 32)

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
