"""Compile kernels with AddressSanitizer, in a process that runs without it."""

from __future__ import annotations

from pathlib import Path

from torch.export import ExportedProgram

from shrinkfx.protocol.choices import InductorOptions
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.aoti.backend import build_once
from shrinkfx.worker.aoti.patching import replace_attribute
from shrinkfx.worker.cpu_memory import asan
from shrinkfx.worker.private_api import build_api

_CHECKED = (".kernel.o", ".so")
"""Suffixes of kernels, and of libraries linked from them."""


def build_instrumented(
    exported: ExportedProgram,
    folder: Path,
    inductor: InductorOptions,
    options: CheckOptions,
) -> None:
    """Compile as the options require, with AddressSanitizer's checks in the kernels.

    Only a process under AddressSanitizer can load the library, but it would take
    several times as long to compile it.
    """
    stock = build_api.CppBuilder.get_command_line

    def command(builder: build_api.CppBuilder) -> str:
        line = stock(builder)
        is_checked = builder.get_target_file_path().endswith(_CHECKED)
        return f"{line} {asan.FLAGS}" if is_checked else line

    with replace_attribute(build_api.CppBuilder, "get_command_line", command):
        build_once(exported, folder, inductor, options)
