"""The model-independent part of every AOTInductor library, compiled once.

A generated wrapper begins with the text of AOTInductor's ``interface.cpp``. That text
and the templates that it uses take most of the wrapper's compile time. They are
compiled, together with ``runtime_instances.cpp``, into an object in the user's cache
folder. The rest of the wrapper is compiled without implicit templates, and linked with
the object.

If anything is unexpected, such as the text of another PyTorch, ``CannotBuild`` is
raised.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shrinkfx.worker import build_cache
from shrinkfx.worker.private_api import build_api

NO_TEMPLATES = ("-fno-implicit-templates", "-fno-implicit-inline-templates")

INSTANCES = Path(__file__).with_name("runtime_instances.cpp")
INTERFACE = Path(torch.__file__).parent / build_api.INTERFACE
AS_WRITTEN: Any = {"encoding": "utf-8", "errors": "surrogateescape"}
"""How to read and write generated code, whatever bytes it contains."""

_INCLUDE = re.compile(r"#include <[\w./]+>")
_STANDARD_INCLUDE = re.compile(r"^#include <[a-z_]+>$", re.MULTILINE)
# The only template whose argument is a type of the model.
_MODEL_TEMPLATE = (
    build_api.MODEL_TEMPLATE,
    "this->kernels_.reset(new AOTInductorModelKernels());",
)
# AOTInductor's header parses device names with std::regex. Without implicit templates
# none of it is emitted, but g++ still instantiates it: 0.35 of 0.85 CPU-seconds. The
# names are those of libstdc++; these lines do not change what is emitted.
_MATCHES = "std::allocator<std::sub_match<std::string::const_iterator>>"
_EXECUTOR = (
    "extern template class std::__detail::_Executor<"
    f"std::string::const_iterator, {_MATCHES}, std::regex_traits<char>, "
)
INSTANTIATED_ELSEWHERE = f"""\
#if defined(_GLIBCXX_REGEX) && _GLIBCXX_RELEASE >= 12 && _GLIBCXX_RELEASE <= 14
extern template class std::__detail::_Compiler<std::regex_traits<char>>;
{_EXECUTOR}true>;
{_EXECUTOR}false>;
#endif
"""
# The fastest first. Without --no-fork, mold links in a process that outlives it.
_LINKERS: Mapping[str, str] = {
    "ld.mold": "-fuse-ld=mold -Wl,--no-fork",
    "ld.lld": "-fuse-ld=lld",
    "ld.gold": "-fuse-ld=gold",
}
_COMPILER_VARIABLES = ("CPATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX")
_ERROR = re.compile(r"(?:error|fatal): ([^\n]+)")
_UNDEFINED = re.compile(r"undefined (?:reference to|symbol:) [`']?([^\n']+)")
_MESSAGE_CHARACTERS = 300
_LOCK_S = 120.0
_COMPILE_S = 300.0


class CannotBuild(Exception):
    """There is no fast build of this program; the message says why."""


@dataclass(frozen=True)
class Split:
    """The two parts of a generated wrapper.

    Attributes:
        common: the text that all wrappers begin with.
        own: the rest, with the includes that it needs.
    """

    common: str
    own: str


@dataclass(frozen=True)
class Runtime:
    """The compiled common part, and the flags to link it with."""

    path: Path
    link_flags: tuple[str, ...]


def split_wrapper(path: Path) -> Split:
    """Separate the model-independent text of a generated wrapper from the rest.

    Raises:
        CannotBuild: the wrapper does not begin with the text of ``interface.cpp``.
    """
    text = path.read_text(**AS_WRITTEN)
    interface = textwrap.dedent(INTERFACE.read_text()).rstrip()
    includes, matched, rest = text.partition(interface)
    if not matched:
        raise CannotBuild("the wrapper does not hold the text of interface.cpp")
    if not all(_INCLUDE.fullmatch(line) for line in includes.split("\n") if line):
        raise CannotBuild("the wrapper has text of its own before interface.cpp")
    line = (includes + interface).count("\n") + 1
    headers = "\n".join(_STANDARD_INCLUDE.findall(interface))
    rest = rest.replace(*_MODEL_TEMPLATE)
    preamble = f"{includes}{headers}\n{INSTANTIATED_ELSEWHERE}"
    # Error messages name the same file and line as without the split.
    return Split(
        common=f"{includes}{interface}\n",
        own=f'{preamble}#line {line} "{path}"\n{rest}',
    )


def runtime_object(
    command: Sequence[str], common: str, scratch: Path, home: Path
) -> Runtime:
    """Return the runtime object that fits a wrapper; compile it if there is none.

    Args:
        command: the command that compiles the wrapper, with its source and output.
        common: the text that wrappers begin with.
        scratch: a folder for unfinished files.
        home: the user's cache folder for all runs.

    Raises:
        CannotBuild: the object cannot be compiled or stored.
    """
    files = (".wrapper.cpp", ".wrapper.o")
    flags = [word for word in command if word != "-o" and not word.endswith(files)]
    text = common + INSTANCES.read_text()
    try:
        path = home / "aoti-runtime" / f"{_key(flags, text)}.o"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            with _locked(path.with_suffix(".lock")):
                if not path.exists():
                    _make(path, flags, text, scratch)
        linker = path.with_suffix(".linker").read_text().split()
        for part in (path, path.with_suffix(".linker")):
            build_cache.note_use(part)
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotBuild(f"no runtime object: {error}") from error
    return Runtime(path, (*linker, "-Wl,-z,defs"))


def first_error(output: str) -> str:
    """Return the first error of a compiler or linker."""
    if missing := _UNDEFINED.findall(output):
        return "undefined: " + ", ".join(dict.fromkeys(missing))[:_MESSAGE_CHARACTERS]
    found = _ERROR.search(output)
    message = found[1] if found else output.strip().rpartition("\n")[2]
    return message[:_MESSAGE_CHARACTERS] or "nothing said"


def _key(flags: Sequence[str], text: str) -> str:
    """Return a key of everything that the object depends on."""
    # A command such as ccache g++ has several words before its flags.
    command = [*itertools.takewhile(lambda word: not word.startswith("-"), flags)]
    compiler = shutil.which(command[-1])
    if compiler is None:
        raise CannotBuild(f"no compiler {command[-1]}")
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, timeout=20, check=False
    )
    parts = (
        *(torch.__version__, str(torch.version.git_version)),
        *(build_cache.identity(compiler), version.stdout),
        *(os.environ.get(name, "") for name in _COMPILER_VARIABLES),
        *(str(shutil.which(name)) for name in _LINKERS),
        *(*flags, text),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive file lock, which the kernel releases if the process dies."""
    deadline = time.monotonic() + _LOCK_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    reason = "another process is making the runtime object"
                    raise CannotBuild(reason) from None
                time.sleep(0.1)
        yield


def _make(path: Path, flags: Sequence[str], text: str, scratch: Path) -> None:
    """Compile in the scratch folder, then move the complete files into place."""
    source, built = scratch / f"{path.stem}.cpp", scratch / path.name
    source.write_text(text)
    # Debug info would make the object, which is linked each time, four times as large.
    done = _compile([*flags, "-g0", str(source), "-o", str(built)])
    if done.returncode:
        reason = first_error(done.stdout)
        raise CannotBuild(f"the runtime object does not compile: {reason}")
    build_cache.forget_old()
    linker = path.with_suffix(".linker")
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        draft.write_text(_choose_linker(flags[0], built))
        draft.replace(linker)
        shutil.copy(built, draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
        built.unlink()


def _compile(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_COMPILE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CannotBuild(f"the compiler took more than {_COMPILE_S:.0f} s") from error


def _choose_linker(compiler: str, built: Path) -> str:
    """Return the flags of the first installed fast linker that works, or ''."""
    for name, flags in _LINKERS.items():
        trial = [compiler, *flags.split(), "-shared", str(built), "-o", f"{built}.so"]
        if shutil.which(name) and _compile(trial).returncode == 0:
            return flags
    return ""
