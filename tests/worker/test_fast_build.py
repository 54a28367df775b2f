"""The fast build, on libraries of a few lines: real g++, no AOTInductor."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch._inductor.config
from torch._inductor.cpp_builder import BuildOptionsBase, CppBuilder
from torch._inductor.exc import CppCompileError

from shrinkfx.protocol.answers import Built
from shrinkfx.protocol.choices import Build, Step
from shrinkfx.worker import build_cache
from shrinkfx.worker.aoti import fast_build
from shrinkfx.worker.aoti.fast_build import StepPassed, cache_header_names
from shrinkfx.worker.aoti.object_store import NOT_SHARED, SharedObjects

INTERFACE = """\
// What all wrappers begin with.
#include <cstdint>

extern "C" int of_the_model(int);
extern "C" int of_all_models() {
  return of_the_model(2);
}
"""
INSTANCES = "template struct Box<int>;\n"
INCLUDES = "#include <box.h>\n"
BOX = """\
template <typename T>
struct Box {
  T opened();
  T value;
};
template <typename T>
T Box<T>::opened() {
  return value;
}
"""
WRAPPER = """
extern "C" int of_the_kernel(int);
extern "C" int of_the_model(int number) {
  Box<int> box{of_the_kernel(number)};
  return box.opened();
}
"""
ANOTHER_TYPE = WRAPPER.replace("Box<int>", "Box<short>")
KERNEL = 'extern "C" int of_the_kernel(int number) { return 20 + number; }\n'
MATCHES = """
inline bool names_a_device(const std::string& text) {
  std::smatch found;
  return std::regex_match(text, found, std::regex("(cpu|cuda)(:([0-9]+))?"));
}
bool is_device(const std::string& text) { return names_a_device(text); }
"""
NOT_CPP = "int undeclared() { return missing_name; }\n"


COMPILER = '#!/bin/sh\n{}\nPATH=${{PATH#*:}} exec g++ "$@"\n'
"""The compiler, after a line of shell."""

InstallTool = Callable[[str, str], Path]


@pytest.fixture(name="cache", autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Take the place of AOTInductor's texts and of the user's cache folder."""
    (tmp_path / "box.h").write_text(BOX)
    for name, text in {"INTERFACE": INTERFACE, "INSTANCES": INSTANCES}.items():
        path = tmp_path / name
        path.write_text(text)
        monkeypatch.setattr(fast_build, name, path)
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return cache


class Library:
    """What AOTInductor would build: a wrapper, a kernel, a library of both."""

    def __init__(
        self,
        folder: Path,
        wrapper: str = WRAPPER,
        kernel: str = KERNEL,
        includes: Path | None = None,
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self._included = [f"include {includes}"] if includes else []
        self._texts = {
            "a.wrapper": INCLUDES + INTERFACE + wrapper,
            "b.kernel": kernel,
        }
        for name, text in self._texts.items():
            (folder / f"{name}.cpp").write_text(text)
        self.path = folder / "a.wrapper.so"

    def build(
        self, only: Step | None = None, shared: SharedObjects = NOT_SHARED
    ) -> Built:
        """Build as ``AotCodeCompiler`` does; say what was written down of it."""
        with fast_build.fast_build(self.folder, only, shared):
            objects = [self.builder(name) for name in self._texts]
            for builder in objects:
                builder.build()
            sources = [builder.get_target_file_path() for builder in objects]
            options = BuildOptionsBase("g++", cflags=["shared", "fPIC"])
            CppBuilder("a.wrapper", sources, options, str(self.folder)).build()
        return self.report()

    def builder(self, name: str) -> CppBuilder:
        flags = ["O0", "fPIC", f"I{self.folder.parent}", *self._included]
        options = BuildOptionsBase("g++", cflags=flags, compile_only=True)
        source = str(self.folder / f"{name}.cpp")
        return CppBuilder(name, source, options, str(self.folder))

    def report(self) -> Built:
        return Built.from_line((self.folder / "built.json").read_text())

    def answers(self) -> int:
        """Call it: 22, if all is well."""
        return int(ctypes.CDLL(str(self.path)).of_all_models())


def objects(cache: Path) -> list[Path]:
    return sorted(cache.glob("shrinkfx/aoti-runtime/*.o"))


def test_runtime_object_is_compiled_once_for_two_libraries(
    tmp_path: Path, cache: Path
) -> None:
    first = Library(tmp_path / "first")
    assert first.build() == Built(Build.FAST, Step.LINK)
    assert first.answers() == 22
    (made,) = objects(cache)
    inode = made.stat().st_ino
    other = KERNEL.replace("20", "30")
    second = Library(
        tmp_path / "second", WRAPPER.replace("opened()", "opened() + 1"), other
    )
    assert second.build() == Built(Build.FAST, Step.LINK)
    assert second.answers() == 33
    assert [path.stat().st_ino for path in objects(cache)] == [inode]


def test_runtime_object_serves_all_servers_with_links_to_the_headers(
    tmp_path: Path, cache: Path
) -> None:
    for name in ("one", "other"):
        header = tmp_path / name / "precompiled_headers" / "hash.h"
        header.parent.mkdir(parents=True)
        header.touch()
        library = Library(tmp_path / f"library-{name}", includes=header)
        assert library.build() == Built(Build.FAST, Step.LINK)
        assert library.answers() == 22
    assert len(objects(cache)) == 1


def test_objects_of_another_child_are_linked_if_sources_are_the_same(
    tmp_path: Path,
) -> None:
    first, second, other = (
        Library(tmp_path / "first"),
        Library(tmp_path / "second"),
        Library(tmp_path / "other", kernel=KERNEL.replace("20", "30")),
    )
    for library in (first, second):
        assert library.build(shared=SharedObjects(library.folder)) == Built(
            Build.FAST, Step.LINK
        )
        assert library.answers() == 22
        assert len(list(tmp_path.glob("object-*"))) == 2
    other.build(shared=SharedObjects(other.folder))
    assert other.answers() == 32  # its own kernel, and the wrapper of the others
    assert len(list(tmp_path.glob("object-*"))) == 3


def test_shared_object_that_does_not_link_is_rebuilt(
    tmp_path: Path,
) -> None:
    first, second = Library(tmp_path / "first"), Library(tmp_path / "second")
    first.build(shared=SharedObjects(first.folder))
    for each in tmp_path.glob("object-*"):
        each.write_text("no object")
    built = second.build(shared=SharedObjects(second.folder))
    assert built.fallback
    assert second.answers() == 22


def test_extern_templates_do_not_change_the_object_symbols(tmp_path: Path) -> None:
    """g++ is to be spared the work, and to emit and to need what it would."""
    includes, use = "#include <regex>\n#include <string>\n", MATCHES
    texts = {"with": includes + fast_build.INSTANTIATED_ELSEWHERE, "no": includes}
    symbols = []
    for name, text in texts.items():
        source, made = tmp_path / f"{name}.cpp", tmp_path / f"{name}.o"
        source.write_text(text + use)
        flags = ["-std=c++20", "-O0", "-fPIC", "-c", *fast_build.NO_TEMPLATES]
        subprocess.run(["g++", *flags, source, "-o", made], check=True)
        listed = subprocess.run(
            ["nm", "--format=just-symbols", made],
            check=True,
            capture_output=True,
            text=True,
        )
        symbols.append(sorted(listed.stdout.split()))
    assert symbols[0] == symbols[1]
    assert any("basic_regex" in name for name in symbols[0])  # it is used


def test_missing_template_instance_is_a_named_fallback(tmp_path: Path) -> None:
    library = Library(tmp_path / "library", ANOTHER_TYPE)
    report = library.build()
    assert report.fallback == "undefined: Box<short>::opened()"
    assert library.answers() == 22


@pytest.mark.parametrize(
    ("wrapper", "kernel", "step"),
    [(NOT_CPP, KERNEL, Step.WRAPPER), (WRAPPER, NOT_CPP, Step.KERNEL)],
)
def test_compiler_error_is_that_of_the_stock_build(
    tmp_path: Path, wrapper: str, kernel: str, step: Step
) -> None:
    library = Library(tmp_path / "library", wrapper, kernel)
    with pytest.raises(CppCompileError, match="missing_name") as caught:
        library.build()
    assert f".{step}.cpp:" in str(caught.value).partition("Output:")[2]
    assert "fno-implicit" not in str(caught.value)
    assert library.report() == Built(Build.FAST, step)


def test_undefined_symbol_falls_back_to_the_stock_build(tmp_path: Path) -> None:
    library = Library(tmp_path / "library", kernel="\n")
    report = library.build()  # a shared library may miss a symbol
    assert report.fallback == "undefined: of_the_kernel"
    with pytest.raises(OSError, match="of_the_kernel"):
        library.answers()


def test_file_and_line_in_errors_are_those_of_the_wrapper(tmp_path: Path) -> None:
    """Texts with a file and a line in them are those of the stock build."""
    says = 'extern "C" const char* file() { return __FILE__; }\n'
    says += 'extern "C" int line() { return __LINE__; }\n'
    library = Library(tmp_path / "library", WRAPPER + says)
    assert library.build().fallback == ""
    loaded = ctypes.CDLL(str(library.path))
    loaded.file.restype = ctypes.c_char_p
    source = library.folder / "a.wrapper.cpp"
    assert loaded.file().decode() == str(source)
    assert "int line()" in source.read_text().splitlines()[loaded.line() - 1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("all wrappers", "other wrappers"), "interface.cpp"),
        (lambda text: "int own;\n" + text, "text of its own"),
    ],
)
def test_unknown_wrapper_falls_back_to_the_stock_build(
    tmp_path: Path, change: Callable[[str], str], reason: str
) -> None:
    library = Library(tmp_path / "library")
    source = library.folder / "a.wrapper.cpp"
    source.write_text(change(source.read_text()))
    report = library.build()
    assert reason in report.fallback
    assert library.answers() == 22


def test_runtime_object_that_does_not_compile_is_a_fallback(
    tmp_path: Path, cache: Path
) -> None:
    fast_build.INSTANCES.write_text(NOT_CPP)
    library = Library(tmp_path / "library")
    report = library.build()
    assert "does not compile" in report.fallback
    assert "missing_name" in report.fallback
    assert library.answers() == 22
    assert objects(cache) == []


def test_unwritable_cache_is_a_fallback(tmp_path: Path, cache: Path) -> None:
    cache.write_text("a file, where a folder should be")
    library = Library(tmp_path / "library")
    assert library.build().fallback.startswith("no runtime object: ")
    assert library.answers() == 22


@pytest.mark.parametrize("only", [Step.LOWERING, Step.WRAPPER, Step.KERNEL])
def test_single_step_can_be_checked_alone(
    tmp_path: Path, cache: Path, only: Step
) -> None:
    broken = "no C++ at all"
    library = Library(
        tmp_path / "library",
        WRAPPER if only is Step.WRAPPER else broken,
        KERNEL if only is Step.KERNEL else broken,
    )
    with pytest.raises(StepPassed):
        library.build(only)
    assert not list(library.folder.glob("*.o"))
    assert objects(cache) == []
    CppBuilder.build(Library(tmp_path / "other").builder("b.kernel"))  # as ever


@pytest.mark.parametrize(
    ("wrapper", "kernel", "only", "said"),
    [
        (NOT_CPP, "worse", Step.WRAPPER, "missing_name"),
        (WRAPPER, NOT_CPP, Step.KERNEL, "missing_name"),
        # The stock build would have come no further than to this.
        ("int other = missing_first;", NOT_CPP, Step.KERNEL, "missing_first"),
    ],
)
def test_step_that_fails_alone_fails_as_in_the_stock_build(
    tmp_path: Path, wrapper: str, kernel: str, only: Step, said: str
) -> None:
    library = Library(tmp_path / "library", wrapper, kernel)
    with pytest.raises(CppCompileError, match=said):
        library.build(only)
    assert library.report().fallback == ""
    assert not list(library.folder.glob("*.o"))


def test_wrapper_of_a_failing_kernel_is_parsed_without_templates(
    install_tool: InstallTool, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    install_tool("g++", COMPILER.format(f'echo "$*" >> {asked}'))
    library = Library(tmp_path / "library", WRAPPER, NOT_CPP)
    with pytest.raises(CppCompileError, match="missing_name"):
        library.build(Step.KERNEL)
    read = [line for line in asked.read_text().splitlines() if "-fsyntax-only" in line]
    assert ".kernel.cpp" in read[0]
    assert ".own.cpp" in read[1]
    assert read[1].split()[-3:] == [*fast_build.NO_TEMPLATES, "-fsyntax-only"]
    assert len(read) == 2


def test_step_that_fails_only_in_a_syntax_check_falls_back(
    install_tool: InstallTool, tmp_path: Path
) -> None:
    """No compiler does that; but what is left out must be built then."""
    check = 'case "$*" in *kernel*-fsyntax-only*) exit 1;; esac'
    install_tool("g++", COMPILER.format(check))
    library = Library(tmp_path / "library")
    assert library.build(Step.KERNEL).fallback == "nothing said"
    assert library.answers() == 22


def test_no_compiler_process_survives_a_wrapper_failure(
    install_tool: InstallTool, tmp_path: Path, survivors: Callable[[], list[str]]
) -> None:
    slow = 'case "$*" in *kernel*) exec sleep 60;; esac'
    install_tool("g++", COMPILER.format(slow))
    library = Library(tmp_path / "library", NOT_CPP)
    with pytest.raises(CppCompileError):
        library.build()
    assert survivors() == []


@pytest.mark.parametrize("works", ["true", "false"])
def test_faster_linker_is_used_if_it_works(
    install_tool: InstallTool, tmp_path: Path, works: str
) -> None:
    mold = f"#!/bin/bash\n{works} || exit 1\necho used >> {tmp_path}/uses\n"
    install_tool("ld.mold", mold + 'exec ld "${@/--no-fork/--eh-frame-hdr}"\n')
    library = Library(tmp_path / "library")
    assert library.build().fallback == ""
    assert library.answers() == 22
    uses = tmp_path / "uses"
    if works == "true":
        assert uses.read_text() == "used\n" * 2  # on trial, and on the library
    else:
        assert not uses.exists()


def test_concurrent_processes_build_one_runtime_object(
    install_tool: InstallTool, tmp_path: Path, cache: Path
) -> None:
    made = f'case "$*" in *-g0*) echo made >> {tmp_path}/made; sleep 1;; esac'
    install_tool("g++", COMPILER.format(made))
    command = ["g++", "a.wrapper.cpp", f"-I{tmp_path}", "-c", "-o", "a.wrapper.o"]
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()

    home = build_cache.folder()

    def make(folder: Path) -> Path:
        text = INCLUDES + INTERFACE
        return fast_build.runtime_object(command, text, folder, home).path

    with ThreadPoolExecutor() as pool:  # each locks for itself, as processes do
        paths = list(pool.map(make, folders))
    assert paths == objects(cache) * 2
    assert (tmp_path / "made").read_text() == "made\n"


def test_wrapper_may_contain_non_utf8_bytes(tmp_path: Path) -> None:
    library = Library(tmp_path / "library", WRAPPER + "// caf\u00e9 ")
    source = library.folder / "a.wrapper.cpp"
    source.write_bytes(source.read_bytes() + b"\xff\n")
    assert library.build().fallback == ""


# --- precompiled headers


_PLAIN = {"aot_inductor.compile_wrapper_opt_level": "O0"}


class Precompiler:
    """Leaves a header and what was compiled from it, as AOTInductor does.

    As there, the name depends on the header and some flags, but not on the options.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.asked = 0

    def __call__(self, header: str, flags: str, **options: object) -> str:
        self.asked += 1
        path = self._folder / f"{header}{flags.replace(' ', '')}.h"
        path.with_name(path.name + ".gch").touch()
        return str(path)


def test_header_is_precompiled_once_per_instruction_set(tmp_path: Path) -> None:
    stock = Precompiler(tmp_path)
    names = [
        cache_header_names(stock, tmp_path)("cpu.h", "-O1", vec_isa=isa)
        for isa in ("avx2", "avx2", "avx512", "avx2")
    ]
    assert stock.asked == 2
    assert names[0] == names[1] == names[3] != names[2]


def test_header_is_precompiled_separately_for_other_flags(tmp_path: Path) -> None:
    stock = Precompiler(tmp_path)
    find = cache_header_names(stock, tmp_path)
    assert find("cpu.h", "-g") != find("cpu.h", "-g1") != find("prefix.h", "-g1")
    with torch._inductor.config.patch(_PLAIN):
        find("cpu.h", "-g")
    assert stock.asked == 4


def test_header_matches_the_current_optimization_level(
    tmp_path: Path,
) -> None:
    """AOTInductor reads the level off its options, and forgets that it may change."""
    stock = functools.cache(Precompiler(tmp_path))
    of_server = stock("cpu.h", "-g")
    with torch._inductor.config.patch(_PLAIN):
        own = cache_header_names(stock, tmp_path)("cpu.h", "-g")
    assert own != of_server


def test_missing_header_is_precompiled_again(tmp_path: Path) -> None:
    stock = Precompiler(tmp_path)
    find = cache_header_names(stock, tmp_path)
    first = find("cpu.h", "-g")
    Path(first + ".gch").unlink()
    assert Path(find("cpu.h", "-g") + ".gch").exists()
    assert stock.asked == 2


def test_header_of_a_program_with_other_options_has_another_name(
    tmp_path: Path,
) -> None:
    """With large weights, AOTInductor defines a macro, and g++ compares macros."""
    stock = Precompiler(tmp_path)
    of_others = stock("prefix.h", "-O3", use_mmap_weights=True)
    find = cache_header_names(stock, tmp_path)
    names = {find("prefix.h", "-O3", use_mmap_weights=large) for large in (False, True)}
    assert len(names | {of_others}) == 3
