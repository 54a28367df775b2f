"""Rewrite generated CUDA code so that it runs on CPU tensors, line for line.

Only text that names a device is rewritten; the functions that the code calls are
replaced in its namespace (``checked_module.py``). Each line keeps its number, because
reports name it.
"""

from __future__ import annotations

import re

_NO_CONTEXT = "__import__('contextlib').nullcontext()"
_STREAM = re.compile(
    r"from torch\._C import _cuda_getCurrentRawStream as (\w+)"
    r"|(\w+) = torch\._C\._cuda_getCurrentRawStream"
)
_GUARD = re.compile(r"torch\.cuda\._DeviceGuard\(\d+\)")
_SET_DEVICE = re.compile(r"torch\.cuda\.set_device\(\d+\)")
_DEVICE = re.compile(r"device\(type='cuda'(?:, index=\d+)?\)")
_DEVICE_NAME = re.compile(r"'cuda(?::\d+)?'")
_NAN_ASSERT = re.compile(
    r"^(\s*)assert not (\w+)\.is(nan|inf)\(\)\.any\(\)\.item\(\)$", re.MULTILINE
)
_LAYOUT_ASSERT = re.compile(
    r"^(\s*)assert_(size_stride|tensor_metadata)\((\w+), ", re.MULTILINE
)

_KERNEL = re.compile(r"^(\w+) = async_compile\.(\w+)\('(\w+)'", re.MULTILINE)
_KERNEL_TEXT = re.compile(
    r"^\w+ = async_compile\.triton\('\w+', '''.*?^''', device_str='cuda'\)",
    re.MULTILINE | re.DOTALL,
)
_ORIGIN = re.compile(
    r"^ *# (?:Topologically Sorted|Unsorted) Source Nodes: \[(.*?)\], "
    r"Original ATen: \[(.*?)\]",
)


def retarget(source: str) -> str:
    """Rewrite device names to the CPU, and let layout assertions replace the tensor."""
    source = _STREAM.sub(lambda m: f"{m[1] or m[2]} = lambda *_: 0", source)
    source = source.replace("triton_helpers.set_driver_to_gpu()", "pass")
    source = _LAYOUT_ASSERT.sub(r"\1\3 = assert_\2(\3, ", source)
    source = _NAN_ASSERT.sub(r'\1require_no("\3", "\2", \2)', source)
    parts, end = [], 0
    # Inside a kernel's text, the device is the target that it was compiled for.
    for kernel in _KERNEL_TEXT.finditer(source):
        parts += [_host(source[end : kernel.start()]), kernel[0]]
        end = kernel.end()
    return "".join([*parts, _host(source[end:])])


def _host(text: str) -> str:
    """Rewrite the device names of the code around the kernels."""
    text = _GUARD.sub(_NO_CONTEXT, text)
    text = _SET_DEVICE.sub("None", text)
    return _DEVICE_NAME.sub("'cpu'", _DEVICE.sub("device(type='cpu')", text))


def read_operators(source: str) -> dict[str, tuple[str, ...]]:
    """Return the source operators of each kernel, read from the comments above it.

    A user kernel computes no operator of the program; it is listed under its own name.
    """
    operators: dict[str, tuple[str, ...]] = {}
    latest: tuple[str, ...] = ()
    for line in source.splitlines():
        if origin := _ORIGIN.match(line):
            latest = _words(origin[2]) or _words(origin[1])
        elif kernel := _KERNEL.match(line):
            is_users = kernel[1] != kernel[3]
            operators[kernel[1]] = (f"user kernel {kernel[3]}",) if is_users else latest
            latest = ()
    return operators


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def find_unsupported(source: str) -> str:
    """Return why the interpreter cannot run the code, or ''."""
    for name, kind, _ in _KERNEL.findall(source):
        if kind != "triton":
            return f"{name} is a kernel of kind {kind}"
    return ""
