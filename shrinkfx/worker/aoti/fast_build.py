"""Build a candidate's library faster than AOTInductor does, from the same code.

The code that does not depend on the model is compiled once
(``runtime_instances.cpp``); the rest of the wrapper and the kernels are compiled in
parallel. If a step fails, it is repeated with AOTInductor's own method, so any failure
has AOTInductor's message.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import inspect
import itertools
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from shrinkfx.protocol.answers import Built
from shrinkfx.protocol.choices import Build, InductorOptions, Step
from shrinkfx.worker import build_cache
from shrinkfx.worker.aoti.object_store import (
    NOT_SHARED,
    SharedObjects,
    remove_header_folder,
)
from shrinkfx.worker.forkserver.supervise import BUILT
from shrinkfx.worker.model import Keywords
from shrinkfx.worker.private_api import fast_build_api, inductor_api

_WRAPPER_LEVEL = "compile_wrapper_opt_level"


class StepPassed(BaseException):
    """The requested step has passed; nothing after it was done.

    Not an Exception, because Inductor wraps those in its own failures.
    """


@contextlib.contextmanager
def fast_build(
    folder: Path, only: Step | None, shared: SharedObjects = NOT_SHARED
) -> Iterator[None]:
    """Replace AOTInductor's build by the fast build inside the context.

    Args:
        folder: the child's own folder; a file there records the progress.
        only: stop once this step has passed; None for all steps.
        shared: objects that other children have compiled, to use where they match.

    Raises:
        StepPassed: the step ``only`` has passed.
    """
    if fast_build_api.FEATURE.missing:
        built = Built(
            Build.FAST, Step.LOWERING, fallback=fast_build_api.FEATURE.missing
        )
        (folder / BUILT).write_text(built.to_line())
        yield
        return
    make, build = fast_build_api.CppBuilder.__init__, fast_build_api.CppBuilder.build
    session = _FastCompile(folder / BUILT, only, build, shared)

    def remember(builder: fast_build_api.CppBuilder, *args: Any, **kwargs: Any) -> None:
        make(builder, *args, **kwargs)
        session.note_builder(builder)

    def build_fast(builder: fast_build_api.CppBuilder) -> None:
        session.build(builder)

    with (
        contextlib.closing(session),
        mock.patch.object(fast_build_api.CppBuilder, "__init__", remember),
        mock.patch.object(fast_build_api.CppBuilder, "build", build_fast),
        remember_headers(folder.parent),
    ):
        yield


def with_plain_wrapper(options: InductorOptions) -> InductorOptions:
    """Compile the wrapper without optimization, unless the user has set a level.

    The wrapper only launches kernels.
    """
    default = getattr(inductor_api.config.aot_inductor, _WRAPPER_LEVEL, None)
    unoptimized = {f"aot_inductor.{_WRAPPER_LEVEL}": "O0"} if default == "O1" else {}
    return {**unoptimized, **options}


class _FastCompile:
    """The state of one compilation: its builders and its progress."""

    def __init__(
        self,
        record: Path,
        only: Step | None,
        stock: Callable[[fast_build_api.CppBuilder], None],
        shared: SharedObjects,
    ) -> None:
        self._record = record
        self._only = only
        self._stock = stock
        self._shared = shared
        self._home = build_cache.folder()  # now, because a script's home may change
        self._built = Built(Build.FAST, Step.LOWERING)
        self._kernels: fast_build_api.CppBuilder | None = None
        self._wrapper: fast_build_api.CppBuilder | None = None
        self._runtime: Runtime | None = None
        self._compiling: _Command | None = None
        self._has_kernels = False
        self._error = ""
        self._deferred = False
        self._write()

    def note_builder(self, builder: fast_build_api.CppBuilder) -> None:
        """Remember the kernels' builder, so that it can start with the wrapper's."""
        if builder.get_target_file_path().endswith(".kernel.o"):
            self._kernels = builder

    def build(self, builder: fast_build_api.CppBuilder) -> None:
        target = builder.get_target_file_path()
        if target.endswith(".wrapper.o"):
            self._note_step(Step.WRAPPER)
            self._build_wrapper(builder)
        elif target.endswith(".kernel.o") and self._wrapper:
            self._note_step(Step.KERNEL)
            self._build_kernels(builder)
        elif self._wrapper and self._wrapper.get_target_file_path() in _words(builder):
            self._note_step(Step.LINK)
            self._link(builder)
        else:
            self._stock(builder)

    def close(self) -> None:
        """Kill the compiler that still runs, if any."""
        compiling, self._compiling = self._compiling, None
        if compiling:
            compiling.kill()

    def _build_wrapper(self, builder: fast_build_api.CppBuilder) -> None:
        self._wrapper = builder
        try:
            if self._only:
                self._test_one_step(self._only, builder)
            else:
                self._compile_side_by_side(builder)
        except (CannotBuild, OSError) as error:
            self._runtime = None
            self._fall_back(str(error))
        if self._runtime is None and not self._deferred:
            self._stock(builder)

    def _test_one_step(self, step: Step, builder: fast_build_api.CppBuilder) -> None:
        """Raise ``StepPassed`` if the step passes; else the stock build shows why."""
        tested = {Step.WRAPPER: builder, Step.KERNEL: self._kernels}.get(step)
        if step is Step.LOWERING:
            raise StepPassed
        if tested is None:
            raise CannotBuild(f"nothing is known of the {step}")
        self._error = _syntax_error(tested)
        if not self._error:
            raise StepPassed
        # The stock build reaches the kernels only if the wrapper compiles.
        self._deferred = step is Step.KERNEL and not self._wrapper_error(builder)

    def _compile_side_by_side(self, builder: fast_build_api.CppBuilder) -> None:
        if not getattr(inductor_api.config.aot_inductor, "link_libtorch", True):
            raise CannotBuild("the library is not linked with torch")
        words = _words(builder)
        model_part, common = self._split(builder)
        self._runtime = runtime_object(words, common, model_part.parent, self._home)
        if self._kernels:
            self._has_kernels = self._shared.copy_stored_object(_words(self._kernels))
            if not self._has_kernels:
                self._compiling = _Command(_words(self._kernels))
        words = [*_with_source(words, model_part), *NO_TEMPLATES]
        if self._shared.copy_stored_object(words):
            return
        self._error = _run_compiler(words)
        if self._error:
            self._runtime = None
            self.close()
        else:
            self._shared.store_object(words)

    def _wrapper_error(self, builder: fast_build_api.CppBuilder) -> str:
        """Check the syntax of the wrapper's own part, or of all if it has none."""
        try:
            model_part, _ = self._split(builder)
        except CannotBuild:
            return _syntax_error(builder)
        return _syntax_error(builder, model_part)

    def _split(self, builder: fast_build_api.CppBuilder) -> tuple[Path, str]:
        """Write the wrapper's own part; return its path and the common part."""
        source = Path(_source(_words(builder)))
        split = split_wrapper(source)
        model_part = source.with_name(source.name.replace(".wrapper.cpp", ".own.cpp"))
        model_part.write_text(split.own, **AS_WRITTEN)
        return model_part, split.common

    def _build_kernels(self, builder: fast_build_api.CppBuilder) -> None:
        compiling, self._compiling = self._compiling, None
        if compiling is None or builder is not self._kernels:
            if not self._has_kernels:
                self._stock(builder)
        elif error := compiling.failure():
            self._stock(builder)
            self._error = error
        else:
            self._shared.store_object(_words(builder))
        if self._deferred and self._wrapper:  # the kernels compile in the stock build
            self._stock(self._wrapper)

    def _link(self, builder: fast_build_api.CppBuilder) -> None:
        """Link with the runtime object; if that fails, compile the whole wrapper."""
        assert self._wrapper is not None
        if self._runtime is not None:
            words = _words(builder)
            place = words.index(self._wrapper.get_target_file_path()) + 1
            words[place:place] = [str(self._runtime.path)]
            error = _run_compiler([*words, *self._runtime.link_flags])
            if error:
                self._error = error
                self._stock(self._wrapper)
                if self._has_kernels and self._kernels:
                    self._stock(self._kernels)
                self._stock(builder)
        else:
            self._stock(builder)
        if self._error:  # but the stock build has succeeded
            self._fall_back(self._error)

    def _note_step(self, step: Step) -> None:
        self._built = replace(self._built, step=step)
        self._write()

    def _fall_back(self, why: str) -> None:
        self._built = replace(self._built, fallback=why)
        self._write()

    def _write(self) -> None:
        """Record the progress; a compiler's crash may end the process."""
        with contextlib.suppress(OSError):  # a full disk: the build fails, too
            self._record.write_text(self._built.to_line())


class _Command:
    """A running compiler process."""

    def __init__(self, words: Sequence[str]) -> None:
        # Not a pipe: it is read only after the other command has ended.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def failure(self) -> str:
        """Wait for the compiler; return its first error, or '' if it succeeds."""
        code = self._process.wait()
        with self._output as output:
            output.seek(0)
            text = output.read().decode(errors="replace")
        return first_error(text) if code else ""

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()


def _run_compiler(words: Sequence[str]) -> str:
    """Run a command; return its first error, or '' if it succeeds."""
    try:
        return _Command(words).failure()
    except OSError as error:
        return str(error)


def _syntax_error(
    builder: fast_build_api.CppBuilder, model_part: Path | None = None
) -> str:
    """Compile a file with ``-fsyntax-only``; return its first error, or ''.

    Args:
        model_part: the wrapper's own part, to check instead of the whole wrapper.
    """
    words = _words(builder)
    output = words.index("-o")
    del words[output : output + 2]
    if model_part is not None:
        words = [*_with_source(words, model_part), *NO_TEMPLATES]
    return _run_compiler([*words, "-fsyntax-only"])


def _words(builder: fast_build_api.CppBuilder) -> list[str]:
    return shlex.split(builder.get_command_line())


def _source(words: Sequence[str]) -> str:
    sources = [word for word in words if word.endswith(".wrapper.cpp")]
    if len(sources) != 1:
        raise CannotBuild("the wrapper's source is not in the command that compiles it")
    return sources[0]


def _with_source(words: Sequence[str], source: Path) -> list[str]:
    """Return the command with another source file."""
    old = _source(words)
    return [str(source) if word == old else word for word in words]


# Find precompiled headers once per server instead of once per check.
#
# AOTInductor preprocesses a header to learn whether its sources have changed, which
# takes a sixth of a CPU-second for each of two headers. They do not change during a
# run.

Precompile = Callable[..., str]


def remember_headers(home: Path) -> contextlib.AbstractContextManager[object]:
    """Let all children of a server look for each precompiled header only once.

    Args:
        home: a folder that the children share.
    """
    name = "_precompile_header"
    precompile = fast_build_api.codecache._precompile_header
    return mock.patch.object(
        fast_build_api.codecache, name, cache_header_names(precompile, home)
    )


def cache_header_names(precompile: Precompile, home: Path) -> Precompile:
    """Wrap ``_precompile_header`` so that its answers are kept for all children.

    The names of Inductor's headers depend on some flags only. g++ ignores a header that
    was compiled with other flags, such as another optimization level, or the macro for
    weights above 2 GB, and parses it as text (1.2 CPU-seconds per file of kernels). So
    the headers of the fast build have names that depend on all flags.

    Args:
        home: a folder that all children of a server share.
    """
    precompile = inspect.unwrap(precompile)

    def find(header: str, command: str, **options: Any) -> str:
        key = _key((header, command), options)
        note = home / f"header-{key}"
        name = note.read_text() if note.exists() else ""
        if name and any(Path(name + end).exists() for end in (".gch", ".pch")):
            return name
        name = precompile(header, f"{command} {key}", **options)
        draft = note.with_suffix(f".{os.getpid()}")
        draft.write_text(name)
        draft.replace(note)
        return name

    return find


def _key(arguments: tuple[Any, ...], options: Keywords) -> str:
    """Return a key of the header, the flags and the wrapper's optimization level."""
    named = sorted((name, str(value)) for name, value in options.items())
    level = getattr(inductor_api.config.aot_inductor, "compile_wrapper_opt_level", "")
    text = repr((arguments, named, level))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


# The model-independent part of every AOTInductor library, compiled once.
#
# A generated wrapper begins with the text of AOTInductor's ``interface.cpp``. That
# text and the templates that it uses take most of the wrapper's compile time. They
# are compiled, together with ``runtime_instances.cpp``, into an object in the user's
# cache folder. The rest of the wrapper is compiled without implicit templates, and
# linked with the object.
#
# If anything is unexpected, such as the text of another PyTorch, ``CannotBuild`` is
# raised.

NO_TEMPLATES = ("-fno-implicit-templates", "-fno-implicit-inline-templates")

INSTANCES = Path(__file__).with_name("runtime_instances.cpp")
INTERFACE = Path(torch.__file__).parent / fast_build_api.INTERFACE
AS_WRITTEN: Any = {"encoding": "utf-8", "errors": "surrogateescape"}
"""How to read and write generated code, whatever bytes it contains."""

_INCLUDE = re.compile(r"#include <[\w./]+>")
_STANDARD_INCLUDE = re.compile(r"^#include <[a-z_]+>$", re.MULTILINE)
# The only template whose argument is a type of the model.
_MODEL_TEMPLATE = (
    fast_build_api.MODEL_TEMPLATE,
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
        path = home / "aoti-runtime" / f"{_object_key(flags, text)}.o"
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


def _object_key(flags: Sequence[str], text: str) -> str:
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
    key = b"\0".join(remove_header_folder(os.fsencode(part)) for part in parts)
    return hashlib.sha256(key).hexdigest()[:24]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive file lock, which the kernel releases if the process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
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
