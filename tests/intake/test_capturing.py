"""Scripts that are captured, with a torch that has the entry points and no more."""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.fake_torch import install

from shrinkfx import api
from shrinkfx import api as reducing
from shrinkfx.errors import LoadError, NothingToReduce, NotReproducible, UsageError
from shrinkfx.intake.capture import running as pythons
from shrinkfx.intake.capture import script_capture
from shrinkfx.intake.capture.running import advise_own_python, environment
from shrinkfx.intake.preload_choice import render_settings
from shrinkfx.options.options import FailedStep, Options
from shrinkfx.preloads.custom_code_sources import mark_as_generated
from shrinkfx.protocol.captured import ImportedValue
from shrinkfx.run.folder import create_run_folder

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]

HEADER = """\
import os, sys, torch
from torch._inductor import aoti_compile_and_package, aoti_load_package

def compiled(what, name="package", **options):
    program = torch.export.export(what, ())
    path = f"{os.path.dirname(__file__)}/{name}.pt2"
    return aoti_compile_and_package(program, package_path=path, **options)

def run(what, *args, name="package", **options):
    return aoti_load_package(compiled(what, name, **options))(*args)
"""


TELLER = script_capture.Reporter(lambda _: None, lambda _: None)


@dataclass
class Captured:
    """What came of a script."""

    folder: Path
    said: list[str] = field(default_factory=list)
    asked: Options | None = None

    @property
    def place(self) -> Path:
        return self.folder / "capture"

    def reduced(self) -> list[str]:
        """Read the program that is to be reduced."""
        assert self.asked is not None
        words: list[str] = pickle.loads(self.asked.model.read_bytes())
        return words

    def inputs(self) -> object:
        assert self.asked is not None
        assert self.asked.inputs is not None
        return pickle.loads(self.asked.inputs.read_bytes())

    def failed(self) -> tuple[FailedStep, bool] | None:
        """Say what has failed in the script, and whether its process died of that."""
        assert self.asked is not None
        failure = self.asked.in_script
        return (failure.failed, failure.died) if failure else None


@pytest.fixture
def captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Captured]:
    """Run a script that ends so, and find what is to be reduced."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("TORCH", "PYTORCH"))]:
        monkeypatch.delenv(name)
    install(tmp_path)

    def run(
        text: str,
        *command: str,
        program: int | None = None,
        timeout_s: float | None = None,
        preload: tuple[str, ...] = (),
    ) -> Captured:
        (tmp_path / "serve.py").write_text(HEADER + text, encoding="utf-8")
        made = Captured(tmp_path / "out")
        made.folder.mkdir(exist_ok=True)
        words = command or (sys.executable, "serve.py")
        options = Options(model=Path("serve"), timeout_s=timeout_s, preload=preload)
        teller = script_capture.Reporter(made.said.append, lambda _: None)
        made.asked = script_capture.capture(
            options, words, program, made.folder, teller
        )
        return made

    return run


@pytest.mark.parametrize(
    ("text", "reduced", "inputs", "failed", "said"),
    [
        pytest.param(
            "run('a call:segv', 1, 2)",
            "a call:segv",
            (1, 2),
            (FailedStep.CALL, True),
            "captured: the process died in call 1 of program 1 (serve.py:10): the "
            "script was killed by SIGSEGV",
            id="the process dies in a call",
        ),
        pytest.param(
            "run('compile:segv')",
            "compile:segv",
            None,
            (FailedStep.COMPILE, True),
            "the process died in compiling program 1",
            id="the process dies in compiling",
        ),
        pytest.param(
            "run('load:segv')",
            "load:segv",
            None,
            (FailedStep.LOAD, True),
            "the process died in loading program 1",
            id="the process dies in loading",
        ),
        pytest.param(
            "try: run('call:raise')\nexcept RuntimeError: pass\nrun('b')",
            "call:raise",
            (),
            (FailedStep.CALL, False),
            "raised RuntimeError: call failed; the script continued",
            id="an exception is caught",
        ),
        pytest.param(
            "try: run('raise')\nexcept ValueError: pass\nrun('b', 2)\n1 / 0",
            "b",
            (2,),
            (FailedStep.NOTHING, False),
            "",
            id="an export fails, and a later one succeeds",
        ),
        pytest.param(
            "run('a', 1)\nassert run('b', 2) == 3",
            "a",
            (1,),
            (FailedStep.NOTHING, False),
            "captured: the script ended with exit code 1, but no export, compilation "
            "or call of a compiled program raised an error",
            id="the script fails after all steps",
        ),
        pytest.param(
            "import subprocess\n"
            "if len(sys.argv) > 1: run('b call:segv', 2, name='two')\n"
            "run('a', 1)\n"
            "command = [sys.executable, __file__, 'child']\n"
            "sys.exit(subprocess.run(command).returncode and 3)",
            "b call:segv",
            (2,),
            (FailedStep.CALL, True),
            "",
            id="a subprocess dies",
        ),
        pytest.param(
            "m = aoti_load_package(compiled('call:segv'))\n"
            "pid = os.fork()\nif not pid: m(1)\n"
            "os.waitpid(pid, 0)\nm.words = []; m(2)",
            "call:segv",
            (1,),
            (FailedStep.CALL, True),
            "",
            id="a fork dies",
        ),
        pytest.param(
            "import shutil, subprocess\n"
            "if len(sys.argv) > 1: compiled('call:raise'); sys.exit()\n"
            "subprocess.run([sys.executable, __file__, 'child'])\n"
            "shutil.move('package.pt2', 'moved.pt2')\n"
            "aoti_load_package('moved.pt2')(5)",
            "call:raise",
            (5,),
            (FailedStep.CALL, False),
            "",
            id="another process has compiled a package that was moved",
        ),
    ],
)
def test_failing_program_is_captured_with_its_inputs(
    captured: Callable[..., Captured],
    text: str,
    reduced: str,
    inputs: object,
    failed: tuple[FailedStep, bool],
    said: str,
) -> None:
    came = captured(text)
    assert came.asked is not None
    assert came.reduced() == reduced.split()
    assert (came.inputs() if came.asked.inputs else None) == inputs
    assert came.failed() == failed
    assert said in "\n".join(came.said)


@pytest.mark.parametrize(
    ("text", "failed", "inputs"),
    [
        ("compile_graph('compile:raise')", FailedStep.COMPILE, None),
        ("compile_graph('call:segv')([torch.Tensor(1), 5])", FailedStep.CALL, (1,)),
        ("compile_graph('a')([torch.Tensor(2)])\n1 / 0", FailedStep.NOTHING, (2,)),
    ],
)
def test_failing_graph_of_torch_compile_is_captured_with_its_tensors(
    captured: Callable[..., Captured],
    text: str,
    failed: FailedStep,
    inputs: tuple[int, ...] | None,
) -> None:
    came = captured(f"from torch._inductor.compile_fx import compile_graph\n{text}")
    assert came.asked is not None
    assert came.asked.model == came.place / "program-1.py"
    assert came.asked.run_code
    assert (came.inputs() if came.asked.inputs else None) == inputs
    assert came.asked.in_script is not None
    assert came.asked.in_script.failed is failed


def test_next_program_is_tried_if_one_cannot_be_loaded(
    captured: Callable[..., Captured], monkeypatch: pytest.MonkeyPatch
) -> None:
    came = captured(
        "for number, word in enumerate('ab'): run(word, number, name=word)\n1 / 0"
    )
    tried: list[str] = []

    def load_and_run(_task: str, _work: object, options: Options, _: object) -> None:
        tried.append(options.model.name)
        if len(tried) == 1:
            raise LoadError(tried[0], "could not be exported", "no advice")

    monkeypatch.setattr(reducing, "_load_and_run", load_and_run)
    assert came.asked is not None
    said: list[str] = []
    api.reduce(came.asked, lambda event: said.append(str(event)))
    assert tried == ["program-1.pt2", "program-2.pt2"]
    assert "program-1.pt2: could not be exported; trying the next: call 1" in said[0]


GRAPH_PASSES = """\
from torch._inductor.compile_fx import compile_graph
compile_graph('a')([]); 1 / 0
"""


def test_capture_is_kept_if_second_run_saves_no_graph(
    captured: Callable[..., Captured],
) -> None:
    came = captured(GRAPH_PASSES)
    assert came.asked is not None
    options = replace(came.asked, out=came.folder)
    teller = script_capture.Reporter(came.said.append, lambda _: None)
    passes = NotReproducible("any", 3, [], "")
    assert script_capture.capture_again(options, teller, passes) is None
    assert came.said[-3:] == [
        "captured: no graph fails as Inductor gets it. Running the script again, with "
        "its graphs in eager, to save them before PyTorch decomposes their operators",
        "captured: the script failed without Inductor, too (exit code 1): the script "
        "itself, Dynamo or AOTAutograd may be wrong",
        "captured: no graph could be saved in this run",
    ]
    assert (came.place / "program-1.py").read_text().startswith("a\n")
    assert [path.name for path in came.folder.iterdir()] == ["capture"]


def test_script_runs_only_once_if_user_chose_the_program(
    captured: Callable[..., Captured],
) -> None:
    came = captured(GRAPH_PASSES, program=1)
    assert came.asked is not None
    options = replace(came.asked, out=came.folder)
    teller = script_capture.Reporter(came.said.append, lambda _: None)
    passes = NotReproducible("any", 3, [], "")
    assert script_capture.capture_again(options, teller, passes) is None
    assert not any("Running the script again" in said for said in came.said)


def test_code_of_session_does_not_run_again(captured: Callable[..., Captured]) -> None:
    came = captured(GRAPH_PASSES)
    assert came.asked is not None
    end = json.loads((came.place / "end.json").read_text())
    (came.place / "end.json").write_text(json.dumps({**end, "is_session": True}))
    options = replace(came.asked, out=came.folder)
    teller = script_capture.Reporter(came.said.append, lambda _: None)
    passes = NotReproducible("any", 3, [], "")
    assert script_capture.capture_again(options, teller, passes) is None
    assert not any("Running the script again" in said for said in came.said)


def test_table_says_which_graph_is_backward(captured: Callable[..., Captured]) -> None:
    came = captured(
        "from torch._inductor.compile_fx import compile_graph\n"
        "compile_graph('a')([])\n"
        "compile_graph('b', is_backward=True)([]); 1 / 0"
    )
    assert came.said[:3] == [
        "program  operators  compiled at            calls",
        "1*       1          serve.py:12            1",
        "2        1          serve.py:13, backward  1",
    ]
    assert came.said[3].startswith("*: tried first; to reduce another program:")


def test_graph_that_cannot_be_written_is_reported(
    captured: Callable[..., Captured],
) -> None:
    text = "from torch._inductor.compile_fx import compile_graph\n"
    with pytest.raises(NothingToReduce, match="no such graph can be written"):
        captured(f"{text}compile_graph('unsavable call:segv')([])")


def test_inputs_of_graph_are_not_saved_if_that_takes_too_long(
    captured: Callable[..., Captured],
) -> None:
    came = captured(
        "import time; from torch._inductor.compile_fx import compile_graph\n"
        "class Large:\n"
        "    def __reduce__(self): time.sleep(1); return int, (7,)\n"
        "graph = compile_graph('a')\n"
        "graph([torch.Tensor(Large())])\n"
        "graph.words = ['call:raise']; graph([torch.Tensor(8)])"
    )
    assert came.inputs() == (7,)
    (said,) = [said for said in came.said if "cannot save the inputs" in said]
    assert said.endswith("slow down the script: using those of an earlier call")


def test_programs_are_tried_in_turn_if_all_steps_succeeded(
    captured: Callable[..., Captured],
) -> None:
    came = captured(
        "for number, word in enumerate('abc'): run(word, number, name=word)\n1 / 0"
    )
    teller = script_capture.Reporter(came.said.append, lambda _: None)
    seen = [(came.reduced(), came.inputs())]
    options = came.asked
    assert options is not None
    passes = NotReproducible("any", 3, [], "")
    while options := script_capture.resolve_next_program(options, teller, passes):
        came.asked = options
        seen.append((came.reduced(), came.inputs()))
        assert came.failed() == (FailedStep.NOTHING, False)
    assert seen == [(["a"], (0,)), (["b"], (1,)), (["c"], (2,))]
    assert came.said[-1].startswith(
        "captured: that program does not fail; trying the next: call 1 of program 3"
    )


def test_programs_that_were_only_compiled_are_tried_in_turn_if_none_was_called(
    captured: Callable[..., Captured],
) -> None:
    came = captured("for word in 'ab': compiled(word, word)\n1 / 0")
    assert came.asked is not None
    seen = [came.reduced()]
    passes = NotReproducible("any", 3, [], "")
    came.asked = script_capture.resolve_next_program(came.asked, TELLER, passes)
    assert came.asked is not None
    seen.append(came.reduced())
    assert seen == [["a"], ["b"]]
    assert script_capture.resolve_next_program(came.asked, TELLER, passes) is None


@pytest.mark.parametrize(
    ("text", "inputs", "kept"),
    [
        pytest.param(
            "for i in range(50): m(i)\nos.kill(os.getpid(), 9)",
            (49,),
            1,
            id="the last inputs, if no call raises",
        ),
        pytest.param(
            "m.words = ['call:raise']\n"
            "for i in range(3):\n  try: m(i)\n  except RuntimeError: m.words = []",
            (0,),
            2,
            id="the failing inputs, after later calls",
        ),
        pytest.param(
            "m.words = ['call:raise']\n"
            "for i in range(5):\n  try: m(i)\n  except RuntimeError: pass\n"
            "m.words = []; m(7)\nm.words = ['call:raise']; m(8)",
            (0,),
            2,
            id="the first inputs that raise an error",
        ),
    ],
)
def test_only_needed_inputs_of_calls_are_kept(
    captured: Callable[..., Captured], text: str, inputs: object, kept: int
) -> None:
    came = captured(f"m = aoti_load_package(compiled('a'))\n{text}")
    assert came.inputs() == inputs
    assert len(list(came.place.glob("*.pt"))) == kept


@pytest.mark.parametrize("what", ["call:sleep", "compile:spin"])
def test_step_that_exceeds_timeout_is_a_hang(
    captured: Callable[..., Captured], what: str
) -> None:
    began = time.monotonic()
    came = captured(f"run('{what}')", timeout_s=1.0)
    assert time.monotonic() - began < 60
    assert came.reduced() == [what]
    assert came.failed() == (FailedStep(what.partition(":")[0]), False)
    assert "did not end in " in came.said[0]
    assert ("a longer --timeout" in came.said[0]) is what.startswith("compile")


def test_timeout_excludes_time_between_steps(
    captured: Callable[..., Captured],
) -> None:
    came = captured(
        "import time; m = compiled('call:raise'); time.sleep(2); "
        "aoti_load_package(m)()",
        timeout_s=1.0,
    )
    assert "call 1 of program 1 (serve.py:11) raised RuntimeError" in came.said[0]


INSTALLED = """\
def outer(package): return inner(package)
def inner(package): return package()
"""


@pytest.mark.parametrize(
    ("submitted", "place"),
    [
        ("package", ""),  # nobody's line has called it: a pool was handed it
        ("lambda: package()", " (serve.py:15)"),
        ("lambda: helper.outer(package)", " (serve.py:15)"),
        ("helper.outer, package", " (helper.py:1)"),
        ("functools.partial(helper.inner, package)", " (helper.py:2)"),
    ],
)
def test_call_location_skips_standard_library_frames(
    captured: Callable[..., Captured], tmp_path: Path, submitted: str, place: str
) -> None:
    packages = tmp_path / "env" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "helper.py").write_text(INSTALLED)
    came = captured(
        "import functools; from concurrent.futures import ThreadPoolExecutor\n"
        f"sys.path.append({str(packages)!r}); import helper\n"
        "package = aoti_load_package(compiled('call:raise'))\n"
        "with ThreadPoolExecutor() as pool:\n"
        f"    pool.submit({submitted}).result()\n"
    )
    assert came.said[-1] == (
        f"captured: call 1 of program 1{place} raised RuntimeError: call failed"
    )


def test_failed_program_is_reduced_when_several_are_captured(
    captured: Callable[..., Captured],
) -> None:
    text = "run('a', 1, name='one')\nrun('b call:segv', 2, name='two')"
    came = captured(text)
    assert came.reduced() == ["b", "call:segv"]
    assert came.said[:3] == [
        "program  operators  compiled at  calls",
        "1        1          serve.py:7   1",
        "2*       2          serve.py:7   1      call: the process died",
    ]
    assert came.said[3].startswith(
        "*: being reduced; to reduce another program: shrinkfx"
    )
    other = captured(text, program=1)
    assert other.reduced() == ["a"]
    assert other.inputs() == (1,)
    assert (
        "program 1, as requested; no failure of it was seen in the script"
        in other.said[-1]
    )


def test_other_program_of_earlier_capture_can_be_chosen(
    captured: Callable[..., Captured],
) -> None:
    came = captured("run('a', 1, name='one')\nrun('call:raise', name='two')")
    teller = script_capture.Reporter(came.said.append, lambda _: None)
    for folder in (came.folder, came.place):
        options = Options(model=folder)
        asked = script_capture.resolve_earlier_capture(options, folder, 1, teller)
        assert asked.model == came.place / "program-1.pt2"
    with pytest.raises(UsageError, match=r"captured: program 1, 2\n.*--program N"):
        script_capture.resolve_earlier_capture(
            Options(model=came.folder), came.folder, 3, teller
        )


def test_pending_options_point_to_captured_files(
    captured: Callable[..., Captured],
) -> None:
    came = captured("run('call:raise', 1)")
    again = script_capture.read_pending_options(came.folder, TELLER)
    assert again is not None
    assert again.model == came.place / "program-1.pt2"
    assert again.inputs
    assert again.inputs.read_bytes()
    assert again.out == came.folder


def test_moved_capture_can_be_resumed(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    came = captured(
        "@torch.library.custom_op('mine::mix')\ndef mix(x): return x\n"
        "run('mine::mix call:raise', 1)"
    )
    there = came.folder.rename(tmp_path / "elsewhere")
    again = script_capture.read_pending_options(there, TELLER)
    assert again is not None
    assert again.out == there
    assert len(again.files) == 3
    assert {file.parent for file in again.files} == {there / "capture"}
    assert all(file.is_file() for file in again.files)


def test_preload_files_are_not_overwritten_by_run_of_other_program(
    captured: Callable[..., Captured],
) -> None:
    defined = "@torch.library.custom_op('{0}::mix')\ndef {0}(x): return x\n"
    came = captured(
        defined.format("one")
        + defined.format("two")
        + "run('one::mix', name='one')\nrun('two::mix call:raise', name='two')"
    )
    assert came.asked is not None
    (first,) = map(Path, came.asked.preload)
    before = first.read_text()
    teller = script_capture.Reporter(came.said.append, lambda _: None)
    other, same = (
        script_capture.resolve_earlier_capture(
            Options(model=came.folder), came.folder, number, teller
        )
        for number in (1, 2)
    )
    assert first.read_text() == before
    assert same.preload == came.asked.preload
    assert other.preload == came.asked.preload  # all that the script registers
    assert "def one(x)" in before
    assert "def two(x)" in before


def test_resume_starts_reduction_of_captured_program(
    captured: Callable[..., Captured], monkeypatch: pytest.MonkeyPatch
) -> None:
    came = captured("run('call:raise', 1)")
    begun: list[Options] = []

    def run(options: Options, out: Path, _: object) -> Options:
        begun.append(replace(options, out=out))
        return options

    monkeypatch.setattr(reducing, "run", run)
    api.resume(came.folder, max_checks=7)
    assert came.asked is not None
    (options,) = begun
    assert (options.model, options.max_checks) == (came.asked.model, 7)
    assert options.inputs == came.asked.inputs


def test_run_uses_settings_of_captured_script(
    captured: Callable[..., Captured],
) -> None:
    came = captured(
        "os.environ['TORCHINDUCTOR_X'] = '1'\nos.environ['TORCH_DIR'] = '/a/b'\n"
        "os.environ['OTHER'] = '1'\n"
        "torch._inductor.config.max_autotune = True\n"
        "torch._inductor.config.custom_pass = lambda graph: None\n"
        "run('call:raise', inductor_configs={'freezing': True, 'given_pass': run})"
    )
    assert came.asked is not None
    assert came.asked.environment == {"TORCHINDUCTOR_X": "1"}
    assert came.asked.inductor == {"max_autotune": True, "freezing": True}
    assert not any("is missing: " in said for said in came.said)
    (own,) = (name for name in came.asked.preload if "definitions" in name)
    text = Path(own).read_text()
    assert "config.custom_pass = lambda graph: None" in text
    assert text.count("config.custom_pass") == 1
    assert "torch._inductor.config.given_pass = run\n" in text
    assert "run('call:raise'" not in text


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ("torch.set_num_threads(1)", {"cpp.threads": 1}),
        ("torch.set_num_threads(1); torch.set_num_threads(2)", {}),
    ],
)
def test_run_uses_the_number_of_threads_of_captured_script(
    captured: Callable[..., Captured], changes: str, settings: dict[str, int]
) -> None:
    came = captured(f"{changes}\nrun('call:raise')")
    assert came.asked is not None
    assert came.asked.inductor == settings


PASSES = """\
from dataclasses import dataclass
class Mine:
    pass
class Scale:
    def __init__(self, by):
        self.by = by
@dataclass(frozen=True)
class Frozen:
    names: tuple = ("a",)
class Slow:
    __slots__ = ("x",)
    def __init__(self):
        self.x = 1
class Listed(set):
    pass
def fuse(graph):
    pass
def made(x):
    return lambda graph: x
class Holding:
    def __init__(self):
        self.graph = object()
HELD = Holding()
NAMED = lambda graph: None
"""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("passes.fuse", "X = fuse"),
        ("passes.Mine()", "X = Mine()"),
        ("passes.Mine", "X = Mine"),
        ("passes.HELD", "X = HELD"),
        ("passes.NAMED", "X = NAMED"),
        (
            "passes.Scale(2.5)",
            "made_1 = Scale.__new__(Scale)\n"
            "object.__setattr__(made_1, 'by', 2.5)\nX = made_1",
        ),
        (
            "passes.Frozen(('b', 1))",
            "made_1 = Frozen()\n"
            "object.__setattr__(made_1, 'names', ('b', 1))\nX = made_1",
        ),
    ],
)
def test_importable_custom_pass_is_set_by_generated_preload(
    captured: Callable[..., Captured], tmp_path: Path, value: str, text: str
) -> None:
    (tmp_path / "passes.py").write_text(PASSES)
    given = f"inductor_configs={{'custom_pass': {value}}}"
    came = captured(f"import passes\nrun('call:raise', {given})")
    assert came.asked is not None
    name, written = came.asked.preload
    assert name == "passes"
    assert Path(written).parent == came.place
    config = "torch._inductor.config"
    named = re.split(r"\W", value)[1]
    head = f"import {config}\nfrom passes import {named}\n\n"
    body = text.replace("X = ", f"{config}.custom_pass = ")
    assert Path(written).read_text() == mark_as_generated(f"{head}{body}\n", _WHAT)
    check = (
        f"import passes, preload_settings, {config} as c\n"
        f"ours, theirs = c.custom_pass, {value}\n"
        "assert type(ours) is type(theirs), type(ours)\n"
        "assert vars(ours) == vars(theirs), vars(ours)\n"
    )
    path = os.pathsep.join((str(tmp_path), str(came.place)))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", check]
    subprocess.run(command, env=environment, check=True, timeout=60)


_WHAT = "settings as they were where it was called"


def test_rendered_settings_disambiguate_equal_class_names() -> None:
    """Of two classes with one name each is itself; nothing reads a module."""
    mine, other = (
        ImportedValue("a.passes", "Drop", "()"),
        ImportedValue("b", "Drop.Inner"),
    )
    text = render_settings({"first": mine, "second": other, "third": mine})
    assert text.splitlines() == [
        "import torch._inductor.config",
        "from a.passes import Drop",
        "from b import Drop as Drop_2",
        "",
        "torch._inductor.config.first = Drop()",
        "",
        "torch._inductor.config.second = Drop_2.Inner",
        "",
        "torch._inductor.config.third = Drop()",
    ]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("lambda graph: None", "it is a lambda"),
        ("passes.made(1)", "it is a lambda"),
        ("passes.Scale(lambda x: x)", "an object of Scale, whose by is no plain value"),
        ("passes.Slow()", "an object of Slow, which has slots"),
        ("passes.Listed([1])", "an object of Listed, which holds more"),
        ("passes.Scale(1).__init__", "it is Scale.__init__ of an object"),
    ],
)
def test_custom_pass_that_cannot_be_imported_is_reported_missing(
    captured: Callable[..., Captured], tmp_path: Path, value: str, why: str
) -> None:
    (tmp_path / "passes.py").write_text(PASSES)
    given = f"inductor_configs={{'custom_pass': {value}}}"
    came = captured(f"import passes\nrun('call:raise', {given})")
    (said,) = (said for said in came.said if "is missing: " in said)
    assert "Inductor's custom_pass is missing: " in said
    assert why in said
    assert "--preload" in said
    assert came.asked is not None
    assert said == f"captured: {came.asked.lacking[0]}"
    assert not any("definitions" in name for name in came.asked.preload)
    assert not list(came.place.glob("preload_settings*"))


@pytest.mark.parametrize(("indent", "is_there"), [("", True), ("  ", False)])
def test_custom_pass_of_script_is_copied_unless_under_main_guard(
    captured: Callable[..., Captured], indent: str, is_there: bool
) -> None:
    head = "" if is_there else "if __name__ == '__main__':\n"
    came = captured(
        f"{head}{indent}class Fuse:\n"
        f"{indent}  def __init__(self, size): self.size = size\n"
        "print('for its own sake')\n"
        "run('call:raise', inductor_configs={'custom_pass': Fuse(2)})"
    )
    assert came.asked is not None
    said = [said for said in came.said if "is missing: " in said]
    cut = [Path(name).read_text() for name in came.asked.preload]
    assert len(cut) == is_there  # nothing else of the script is needed
    text = "".join(cut)
    ours = (
        "made_1 = Fuse.__new__(Fuse)\nobject.__setattr__(made_1, 'size', 2)\n"
        "torch._inductor.config.custom_pass = made_1\n"
    )
    assert text.endswith(ours) is is_there
    assert ("class Fuse:" in text) is is_there
    assert "for its own sake" not in text
    why = "Fuse is created only in the script itself"
    assert [why in each for each in said] == ([] if is_there else [True])


def test_custom_pass_set_by_user_preload_is_not_reported_missing(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    (tmp_path / "passes.py").write_text(PASSES)
    setting = "import torch\ntorch._inductor.config.custom_pass = max\n"
    (tmp_path / "by_hand.py").write_text(setting)
    given = "inductor_configs={'custom_pass': lambda graph: None}"
    came = captured(f"run('call:raise', {given})", preload=("by_hand",))
    assert not any("is missing: " in said for said in came.said)


def test_custom_pass_set_on_import_needs_no_generated_preload(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    """Where only a function sets it, nobody may call that in the run: a file does."""
    text = "import torch\nclass Mine:\n    pass\n"
    setting = "torch._inductor.config.custom_pass = Mine()\n"
    (tmp_path / "sets.py").write_text(f"{text}{setting}")
    (tmp_path / "offers.py").write_text(f"{text}def put():\n    {setting}")
    came = captured("import sets\nrun('call:raise')")
    assert came.asked is not None
    assert came.asked.preload == ("sets",)
    assert not any("is missing: " in said for said in came.said)
    assert any(
        "preloading module `sets`, which defines or changes torch._inductor.config" in s
        for s in came.said
    )
    came = captured("import offers\noffers.put()\nrun('call:raise')")
    assert came.asked is not None
    _, written = came.asked.preload
    assert "config.custom_pass = Mine()\n" in Path(written).read_text()


def test_variable_unset_by_script_is_reported(
    captured: Callable[..., Captured], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TORCH_LOGS", "TORCH_HUB_TOKEN", "TORCHINDUCTOR_X"):
        monkeypatch.setenv(name, "1")
    came = captured("del os.environ['TORCHINDUCTOR_X']\nrun('call:raise')")
    unset = [said for said in came.said if "unset" in said]
    assert unset == [
        "captured: the script unset TORCHINDUCTOR_X: unset it here as well"
    ]


def test_modules_that_register_used_operators_are_preloaded(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    (tmp_path / "elsewhere" / "pkg").mkdir(parents=True)
    helper = "import torch\ndef register(name): torch.library.custom_op(name)\n"
    (tmp_path / "helper.py").write_text(helper)
    registers = "from helper import register\nregister('{}::mix')\n"
    (tmp_path / "ops.py").write_text(registers.format("one"))
    (tmp_path / "elsewhere" / "pkg" / "ops.py").write_text(registers.format("two"))
    (tmp_path / "unused.py").write_text(registers.format("three"))
    came = captured(
        "import ops, unused\nsys.path.append('elsewhere')\nimport pkg.ops\n"
        "run('one::mix two::mix call:raise')"
    )
    assert came.asked is not None
    here, there = came.asked.preload
    assert here == "ops"
    text = Path(there).read_text()
    assert str(tmp_path / "elsewhere") in text
    assert "import pkg.ops" in text


def test_module_of_mutating_operator_is_preloaded(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    text = "import torch\ntorch.library.custom_op('mine::scale_')\n"
    (tmp_path / "ops.py").write_text(text)
    came = captured("import ops\nrun('auto_functionalized/mine::scale_ call:raise')")
    assert came.asked is not None
    assert came.asked.preload == ("ops",)


def test_module_on_sys_path_of_script_alone_is_preloaded_by_file(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "own_ops.py").write_text("import torch\ntorch.library.custom_op('a::b')")
    came = captured(
        "sys.path.insert(0, 'tools')\nimport own_ops\nrun('a::b call:raise')"
    )
    assert came.asked is not None
    assert came.asked.preload == (str(tools / "own_ops.py"),)


def test_operators_defined_in_script_are_copied_to_preload(
    captured: Callable[..., Captured],
) -> None:
    came = captured(
        "SCALE = 2\n"
        "@torch.library.custom_op('mine::mix')\n"
        "def mix(x):\n    return x * SCALE\n"
        "print('this acts')\n"
        "run('mine::mix call:raise')"
    )
    assert came.asked is not None
    (preload,) = came.asked.preload
    assert Path(preload).parent == came.place
    text = Path(preload).read_text()
    assert "def mix(x):" in text
    assert "SCALE = 2" in text
    assert "this acts" not in text
    assert "call:raise" not in text
    assert any(
        "defined" in said or "; the definition was copied to" in said
        for said in came.said
    )


@pytest.fixture
def read_from_stdin(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Have what is started next read a text, as ``python - < FILE`` does."""
    before = os.dup(0)

    def give(text: str) -> None:
        (tmp_path / "given").write_text(text)
        with open(tmp_path / "given") as file:
            os.dup2(file.fileno(), 0)

    yield give
    os.dup2(before, 0)
    os.close(before)


NO_FILE = HEADER.replace("os.path.dirname(__file__)", "os.getcwd()")
OWN = "@torch.library.custom_op('mine::op')\ndef op(x): return x\n"


@pytest.mark.parametrize("words", [(), ("-",), ("-u", "-")])
def test_script_read_from_stdin_is_captured(
    captured: Callable[..., Captured],
    read_from_stdin: Callable[[str], None],
    words: tuple[str, ...],
) -> None:
    read_from_stdin(f"{NO_FILE}run('call:raise')\n")
    made = captured("", sys.executable, *words)
    assert made.reduced() == ["call:raise"]
    assert "(<stdin>:" in made.said[0]


def test_script_passed_with_dash_c_is_captured(
    captured: Callable[..., Captured],
) -> None:
    made = captured("", sys.executable, "-c", f"{NO_FILE}run('call:raise')")
    assert made.reduced() == ["call:raise"]


def test_operators_of_script_without_file_are_reported_with_advice(
    captured: Callable[..., Captured], read_from_stdin: Callable[[str], None]
) -> None:
    text = f"{NO_FILE}{OWN}run('mine::op call:raise')\n"
    read_from_stdin(text)
    for words in (("-",), ("-c", text)):
        made = captured("", sys.executable, *words)
        assert made.reduced() == ["mine::op", "call:raise"]
        assert "operators of mine: the script is not a file" in made.said[-1]
        assert "shrinkfx --capture -- python FILE.py" in made.said[-1]


def test_module_run_with_dash_m_is_captured_with_relative_import(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "ops.py").write_text(f"import torch\n{OWN}")
    text = f"{HEADER}from . import ops\nrun('mine::op call:raise')"
    (tmp_path / "pkg" / "serve.py").write_text(text)
    made = captured("", sys.executable, "-m", "pkg.serve")
    assert made.asked is not None
    assert made.asked.preload == ("pkg.ops",)


def test_script_that_changes_working_directory_is_captured(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "helper.py").write_text(f"import torch\n{OWN}")
    made = captured("os.chdir('far')\nimport helper\nrun('mine::op call:raise')")
    assert made.asked is not None
    assert made.asked.preload == ("helper",)
    assert made.place.is_dir()


def test_utf8_script_is_captured_in_ascii_locale(
    captured: Callable[..., Captured], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process whose locale has no such letters."""
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    came = captured(
        "GRÖSSE = 'größer → 2'\n"
        "@torch.library.custom_op('mine::mix')\n"
        "def mix(x):\n    return GRÖSSE\n"
        "try: run('mine::mix call:raise', GRÖSSE)\n"
        "except RuntimeError: raise ValueError(GRÖSSE)\n"
    )
    assert came.inputs() == ("größer → 2",)
    assert came.asked is not None
    (preload,) = map(Path, came.asked.preload)
    assert "GRÖSSE = 'größer → 2'" in preload.read_text(encoding="utf-8")


# --- what cannot be reduced


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run('a')", "serve.py did not fail: there is nothing to reduce"),
        ("sys.exit(3)", "compiled nothing with Inductor; the script ended with"),
        ("run('raise')", "torch.export.export (serve.py:5) raised ValueError"),
        ("run('unsavable call:raise')", "no such thing can be serialized"),
        (
            "open('p.pt2', 'w').write('[\"call:raise\"]')\n"
            "aoti_load_package('p.pt2')()",
            "call 1 of a package from elsewhere (serve.py:12) raised",
        ),
    ],
)
def test_capture_without_reducible_failure_raises_nothing_to_reduce(
    captured: Callable[..., Captured], text: str, said: str
) -> None:
    with pytest.raises(NothingToReduce) as told:
        captured(text)
    assert said in str(told.value)
    assert told.value.exit_code == 3


def test_script_that_never_imports_torch_is_reported(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    (tmp_path / "bare.py").write_text("raise SystemExit(7)")
    with pytest.raises(
        NothingToReduce, match="it failed before the import; the script ended"
    ):
        captured("", sys.executable, "bare.py")
    assert not (tmp_path / "out" / "capture").exists()
    with pytest.raises(
        NothingToReduce, match=("could not watch any Python process of this command:")
    ):
        captured("", sys.executable, "-I", "bare.py")


def test_python_without_torch_is_reported_with_command_to_use(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, symlinks=True)
    python = str(bare / "bin" / "python")
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "serve.py").write_text("import torch")
    with pytest.raises(NothingToReduce) as told:
        captured("", python, "alone/serve.py")
    said = str(told.value)
    assert f"did not import PyTorch: its Python has no PyTorch ({python})" in said
    assert advise_own_python((python, "alone/serve.py")) in said


@pytest.mark.parametrize(
    ("command", "script", "short", "advice"),
    [
        ("python3 serve.py -c 1", "serve.py", "python3 serve.py", "{} serve.py -c 1"),
        (
            "python -u -X dev -Werror -W ignore serve.py",
            "serve.py",
            "python -u",
            "{} -u -X dev -Werror -W ignore serve.py",
        ),
        ("python -m pkg.serve -b 4", "", "python -m pkg.serve", "{} -m pkg.serve -b 4"),
        ("python -mpkg.serve", "", "python -mpkg.serve", "{} -mpkg.serve"),
        ("python - serve.py", "", "python -", "{} - serve.py"),
        ("pytest -m slow", "", "pytest -m slow", "{} -m pytest -m slow"),
        ("torchrun a.py", "", "torchrun a.py", "{} -m torch.distributed.run a.py"),
    ],
)
def test_python_of_a_command_is_recognised(
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    script: str,
    short: str,
    advice: str,
) -> None:
    words = shlex.split(command)
    assert pythons.find_python_script(words) == script
    assert pythons.shorten_command(words) == short
    monkeypatch.setattr(pythons, "find_spec", lambda _: True)
    said = f"shrinkfx --capture -- {advice.format(shlex.quote(sys.executable))}"
    assert advise_own_python(words).endswith(f" {said}")


def test_advice_for_other_commands_and_without_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pythons, "find_spec", lambda _: True)
    path = f"PATH={Path(sys.executable).parent}:$PATH"
    said = advise_own_python(("./serve.sh", "a b"))
    assert said.endswith(f": {path} shrinkfx --capture -- ./serve.sh 'a b'")
    monkeypatch.setattr(pythons, "find_spec", lambda _: None)
    said = advise_own_python(("python", "serve.py"))
    assert "use the path of a Python that has PyTorch, as in /env/bin/python" in said


def test_capture_refuses_folder_with_unrelated_files(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    theirs = tmp_path / "out" / "capture" / "photo.png"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    with pytest.raises(UsageError, match="is not a capture: choose another --out"):
        captured("run('call:raise')")
    assert theirs.exists()


def test_capture_works_in_folder_of_session_killed_at_start(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    place = tmp_path / "out" / "capture"
    place.mkdir(parents=True)
    (place / "started").touch()
    assert captured("run('call:raise')").reduced() == ["call:raise"]


def test_damaged_capture_is_refused(captured: Callable[..., Captured]) -> None:
    came = captured("run('call:raise')")
    (came.place / "end.json").write_text('{"code": 1}')
    teller = script_capture.Reporter(came.said.append, lambda _: None)
    with pytest.raises(UsageError, match="damaged, or from another version"):
        script_capture.resolve_earlier_capture(
            Options(model=came.folder), came.folder, None, teller
        )


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python serve.py --batch 4", "serve"),
        ("pytest -x tests/test_serving.py::test_one", "test_serving"),
        ("python -m pkg.serve", "pkg-serve"),
        ("torchrun --nproc 2 -m serving", "serving"),
        ("./bench", "bench"),
    ],
)
def test_run_is_named_after_its_script(command: str, name: str) -> None:
    assert script_capture.name_run(tuple(command.split())).name == name


def test_run_folder_of_captured_program_is_named_after_script(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    came = captured("run('a'); run('call:raise', name='other')")
    assert came.asked is not None
    assert came.asked.model.name == "program-2.pt2"
    assert came.asked.called == "serve.py"
    other = script_capture.resolve_earlier_capture(
        Options(model=came.folder), came.folder, 1, TELLER
    )
    with create_run_folder(other) as folder:
        assert folder == Path("shrinkfx-out/serve-1")


def test_capture_without_failure_is_listed_and_refused_on_resume(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    with pytest.raises(NothingToReduce):
        captured("run('a')")
    (run,) = api.runs(tmp_path / "out")
    assert run.status == "captured"
    with pytest.raises(NothingToReduce, match="--program"):
        api.resume(tmp_path / "out")


def test_missing_command_is_reported(captured: Callable[..., Captured]) -> None:
    with pytest.raises(UsageError, match="No such file or directory; give a command"):
        captured("", "no-such-program")


# --- the script is as it would be


def run_plain_and_watched(
    folder: Path, *words: str
) -> list[subprocess.CompletedProcess[str]]:
    place = folder / "capture"
    place.mkdir(exist_ok=True)
    command = [sys.executable, *words]
    usual = dict(os.environ)
    return [
        subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        for env in (usual, environment(place, usual))
    ]


def test_watched_script_sees_same_environment_and_output(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    script = (
        "import sys, sitecustomize_next\n"
        "print(sys.path, sys.argv, sitecustomize_next.__name__)\n"
        "import torch, torch._inductor\n"
        "print(torch.export.export.__name__, torch.export.export.__module__)\n"
        "print(type(torch.export.__loader__).__name__)\n"
        "print('to stderr', file=sys.stderr)\nsys.exit(5)\n"
    )
    (tmp_path / "sitecustomize_next.py").touch()
    (tmp_path / "shown.py").write_text(script)
    without, within = run_plain_and_watched(tmp_path, "shown.py", "a")
    assert (without.stdout, without.stderr) == (within.stdout, within.stderr)
    assert without.returncode == within.returncode == 5


def test_watched_script_shows_same_warnings(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    """Those of the script, and none of what is saved on its way."""
    script = (
        "import warnings\n"
        "def old():\n    warnings.warn('old', FutureWarning)\n"
        "for name in ('one', 'two'):\n    old()\n    compiled('fine', name)\n"
        "run('fine warns', name='three')\nold()\n"
    )
    (tmp_path / "warns.py").write_text(HEADER + script)
    saves = tmp_path / "torch" / "export" / "__init__.py"
    warns = "    import warnings; warnings.warn('saved', FutureWarning)\n"
    saving = "def save(program, path):\n"
    saves.write_text(saves.read_text().replace(saving, saving + warns))
    without, within = run_plain_and_watched(tmp_path, "warns.py")
    assert without.returncode == within.returncode == 0
    assert without.stderr.count("FutureWarning: old") == 1
    assert within.stderr == without.stderr


def test_sitecustomize_of_the_user_is_run(
    captured: Callable[..., Captured],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 42\n")
    monkeypatch.setenv("PYTHONPATH", str(own))
    shown = "import sitecustomize; print(theirs, sitecustomize.__file__)"
    without, within = run_plain_and_watched(tmp_path, "-c", shown)
    assert within.stdout == without.stdout == f"42 {own}/sitecustomize.py\n"


def test_watching_imports_few_modules_before_torch(tmp_path: Path) -> None:
    shown = "import sys; print(len(sys.modules), 'torch' in sys.modules)"
    without, within = run_plain_and_watched(tmp_path, "-c", shown)
    count, _, has_torch = within.stdout.strip().partition(" ")
    assert has_torch == "False"
    assert int(count) - int(without.stdout.split()[0]) < 200


def test_subprocesses_of_script_end_with_script(
    captured: Callable[..., Captured], marked: Callable[[], list[int]]
) -> None:
    sleeper = "[sys.executable, '-c', 'import time; time.sleep(600)']"
    captured(
        "import subprocess\n"
        f"subprocess.Popen({sleeper}, start_new_session=True)\n"
        f"subprocess.Popen({sleeper})\n"
        "run('call:raise')"
    )
    deadline = time.monotonic() + 20
    while marked() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert marked() == []


def test_script_may_read_the_terminal(tmp_path: Path) -> None:
    code = "print('got ' + input()); raise SystemExit(7)"
    words = [sys.executable, "-m", "shrinkfx", "--capture", "-q", "--"]
    within = "import os, pty, sys; os._exit(pty.spawn(sys.argv[1:]) >> 8)"
    done = subprocess.run(
        [sys.executable, "-c", within, *words, sys.executable, "-c", code],
        cwd=tmp_path,
        input=b"abc\n",
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert b"got abc" in done.stdout
    assert done.returncode == 3


def test_ctrl_c_ends_script_and_reports_current_step(
    captured: Callable[..., Captured], tmp_path: Path
) -> None:
    def interrupt() -> None:
        deadline = time.monotonic() + 60
        begun = tmp_path / "out" / "capture"
        while not list(begun.glob("begun-call-*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    import threading

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as ended:
        captured(
            "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "run('call:spin')"
        )
    thread.join()
    there, note = ended.value.__notes__
    assert there.startswith("the captured programs are in")
    assert "the script was in call 1 of program 1; if that step hangs: shrinkfx" in note
    end = json.loads((tmp_path / "out" / "capture" / "end.json").read_text())
    assert end["code"] == -signal.SIGINT
    # What was captured is in the list of runs, and may be gone on with.
    (run,) = api.runs(tmp_path)
    assert (run.status, run.program, run.may_go_on) == ("captured", "serve.py", True)
    asked = script_capture.read_pending_options(tmp_path / "out", TELLER)
    assert asked is not None
    assert (asked.called, asked.model.name) == ("serve.py", "program-1.pt2")
    assert asked.out == tmp_path / "out"


AT_A_TERMINAL = """
import os, pty, select, sys
pid, fd = pty.fork()
if not pid:
    os.execvp(sys.argv[1], sys.argv[1:])
again = b""
while True:
    try:
        if not select.select([fd], [], [], 2)[0]:
            os.write(fd, again)
            continue
        said = os.read(fd, 1000)
        if b"name?" in said:
            os.write(fd, b"abc\\n")
        if b"waiting" in said:
            again = b"\\x03"
    except OSError:
        break
    print(said.decode(), flush=True)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
"""Answers at a terminal, and then types Ctrl-C until that is heard."""


@pytest.mark.parametrize(
    "then",
    [
        "print('waiting', flush=True); time.sleep(600)",
        "signal.signal(2, signal.SIG_IGN); print('waiting', flush=True); "
        "run('call:sleep')",
    ],
    ids=["by itself", "in a step that does not hear it"],
)
def test_ctrl_c_interrupts_after_script_read_the_terminal(
    captured: Callable[..., Captured], tmp_path: Path, then: str
) -> None:
    text = f"{HEADER}import signal, time\ninput('name?')\n{then}\n"
    (tmp_path / "serve.py").write_text(text)
    words = [sys.executable, "-m", "shrinkfx", "--capture", "-q", "--out", "out", "--"]
    done = subprocess.run(
        [sys.executable, "-c", AT_A_TERMINAL, *words, sys.executable, "serve.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert b"interrupted" in done.stdout
    assert done.returncode == 4


STARTS_ALL_THE_TIME = """
import os, sys, time
end = time.monotonic() + 60  # by itself, should nobody end it
pid = os.fork()
while time.monotonic() < end:
    if pid:
        os._exit(0)
    os.setsid()
    time.sleep(0.001)
    pid = os.fork()
"""

STARTS = f"""
import os, subprocess, sys, time
chain = {STARTS_ALL_THE_TIME!r}
sleeper = "import time; time.sleep(600)"
kept = {{"SHRINKFX_TEST": os.environ["SHRINKFX_TEST"]}}  # and nothing else
for code, env in ((sleeper, None), (sleeper, kept), (chain, None)):
    command = [sys.executable, "-c", code]
    subprocess.Popen(command, start_new_session=True, env=env)
open("ready", "w").close()
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["SIGHUP", "SIGTERM", "SIGKILL", "SIGINT"])
def test_signal_that_ends_shrinkfx_ends_subprocesses_of_script(
    marked: Callable[[], list[int]],
    survivors: Callable[[], list[str]],
    wait_for: Callable[[Callable[[], object]], None],
    tmp_path: Path,
    how: str,
) -> None:
    (tmp_path / "starts.py").write_text(STARTS)
    words = [sys.executable, "-m", "shrinkfx", "--capture", "-q", "--out", "out", "--"]
    # nohup has SIGHUP ignored, which a new process would inherit.
    heeding = ["env", "--default-signal=HUP"]
    shrinkfx = subprocess.Popen(
        [*heeding, *words, sys.executable, "starts.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    wait_for((tmp_path / "ready").exists)
    assert len(marked()) >= 4
    shrinkfx.send_signal(getattr(signal, how))
    shrinkfx.wait(timeout=60)
    assert survivors() == []
