"""Which flags of the guide are tried, how, and what is made of the answers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.doubles import FakeServer, Minutes

from shrinkfx.check.oracle import CheckClient, Limits
from shrinkfx.explain import guide
from shrinkfx.explain.guide import run_guide
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.findings.record import Explanation, Guide, Outcome
from shrinkfx.protocol.answers import Checked, Ending, Raised, Ready
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.files import ArtifactFile
from shrinkfx.protocol.requests import CheckOptions, Request
from shrinkfx.testing import chain, whole

PROGRAM = whole(chain("x", "relu", "tanh", "cos"))
TARGET = Signature(Kind.CRASH, Stage.RUN, MEMORY_FAULT, "SIGSEGV")
DEAD = Ending("signal", signal.SIGSEGV, "run")
PASSES = Ending("exit", stage="done", answer=Checked())
REFUSED = "input_handles[0]: dim value is too large at 1, expected it to be <= 16"
NAMES = (
    "[ before_launch: made_0 ]\n[ after_launch: made_0 ]\n[ before_launch: bad_1 ]\n"
)
PRINTER = "aot_inductor.debug_intermediate_value_printer"


class Flagged(FakeServer):
    """Does under each flag something else, and leaves what a child does."""

    def __init__(self, ready: Ready = Ready()) -> None:  # noqa: B008 - frozen
        super().__init__(PASSES)
        self.ready = ready

    def _reply(self, request: Request) -> Ending:
        options = request.options
        if options.leave:
            self._leave(Path(options.leave))
        printer = str(options.inductor.get(PRINTER, "0"))
        if options.environment.get("AOTI_RUNTIME_CHECK_INPUTS"):
            return Ending("exit", stage="run", answer=Raised("RuntimeError", REFUSED))
        if options.inductor.get("nan_asserts"):
            return PASSES
        log = NAMES if printer == "3" else ""
        return Ending("signal", signal.SIGSEGV, "run", log=log)

    def _leave(self, home: Path) -> None:
        (home / ArtifactFile.SOURCES).mkdir(parents=True)
        (home / ArtifactFile.SOURCES / "a.wrapper.cpp").write_text("a wrapper")
        (home / ArtifactFile.LOG).write_text("log")
        (home / "other").write_text("nobody asked for it")


def guide_for(server: FakeServer, folder: Path | None = None, *kernels: str) -> Guide:
    client = CheckClient(server, Limits(60.0, 1 << 30), CheckOptions(sanity=True))
    return run_guide(ReducedProgram(client, PROGRAM, TARGET), kernels, folder)


def outcomes(found: Guide) -> dict[str, Outcome]:
    return {row.flag.partition("=")[0]: row.outcome for row in found.rows}


def test_each_flag_has_a_row_with_its_outcome() -> None:
    found = guide_for(Flagged(), None, "bad_1")
    assert [(row.flag.partition(" ")[0], row.outcome) for row in found.rows] == [
        ("", Outcome.SAME),
        ("AOTI_RUNTIME_CHECK_INPUTS=1", Outcome.OTHER),
        ("TORCH_SHOW_CPP_STACKTRACES=1", Outcome.SAME),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING=1", Outcome.NOT_TESTED),
        ("CUDA_LAUNCH_BLOCKING=1", Outcome.NOT_TESTED),
        ("TORCHINDUCTOR_NAN_ASSERTS=1", Outcome.PASSES),
        ("AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER=3", Outcome.SAME),
        ("AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER=2", Outcome.SAME),
    ]
    assert found.rows[1].command == "AOTI_RUNTIME_CHECK_INPUTS=1 python repro.py"
    assert found.rows[1].output == (REFUSED,)
    assert found.last_launch == "bad_1"
    assert Explanation.from_line(Explanation(guide=found).to_line()).guide == found


def test_one_flag_is_set_at_a_time_and_runtime_flags_reuse_the_package() -> None:
    server = Flagged()
    guide_for(server, None, "bad_1")
    assert not any(request.options.sanity for request in server.asked)
    packages = [request.options.package for request in server.asked]
    assert packages == [packages[0]] * 3 + [None] * 3
    asked_for = [(r.options.environment, r.options.inductor) for r in server.asked]
    flags = [[*filter(None, env.values()), *inductor] for env, inductor in asked_for]
    assert [len(names) for names in flags] == [0, 1, 1, 1, 1, 2]
    # What the user has set of them is taken away.
    taken = [env.get("AOTI_RUNTIME_CHECK_INPUTS") for env, _ in asked_for]
    assert taken == ["", "1", "", "", "", ""]


def test_values_are_printed_for_the_culprit_kernel() -> None:
    server = Flagged()
    found = guide_for(server, None, "made_0")
    assert found.rows[-1].flag.endswith('_FILTERED_KERNELS_TO_PRINT="made_0"')
    filtered = server.asked[-1].options.inductor["aot_inductor.filtered_kernel_names"]
    assert filtered == "made_0"
    # Without a known culprit, it is the kernel that was launched last.
    found = guide_for(Flagged())
    assert found.rows[-1].flag.endswith('_FILTERED_KERNELS_TO_PRINT="bad_1"')


def test_runtime_flags_are_skipped_if_the_program_does_not_compile() -> None:
    error = Ending("exit", stage="compile", answer=Raised("InductorError", "no"))
    server = FakeServer(error)
    found = guide_for(server)
    assert len(server.asked) == 1
    assert {row.why for row in found.rows[1:]} == {
        "the program fails before it runs",
    }


def test_flags_without_meaning_on_the_interpreter_are_marked() -> None:
    on = Ready(backend=Backend.INTERPRETER, for_cuda=True)
    found = guide_for(Flagged(on), None, "bad_1")
    silent = {row.flag.partition("=")[0]: row.why for row in found.rows if row.why}
    assert len(silent) == 4
    assert all(why.startswith("has no meaning on the inter") for why in silent.values())
    assert outcomes(found)["TORCHINDUCTOR_NAN_ASSERTS"] is Outcome.PASSES
    assert outcomes(found)["AOTI_RUNTIME_CHECK_INPUTS"] is Outcome.OTHER


def test_cuda_variables_are_tried_separately() -> None:
    server = Flagged(Ready(for_cuda=True))
    guide_for(server)
    names = "PYTORCH_NO_CUDA_MEMORY_CACHING", "CUDA_LAUNCH_BLOCKING"
    set_so = [tuple(r.options.environment.get(n) for n in names) for r in server.asked]
    assert [one for one in set_so if any(one)] == [("1", ""), ("", "1")]


def test_no_query_is_made_if_time_is_short() -> None:
    server = Flagged()
    client = CheckClient(server, Limits(60.0, 1 << 30))
    short = ReducedProgram(client, PROGRAM, TARGET, budget=Minutes(10.0), seconds=9.0)
    found = run_guide(short, ())
    assert not server.asked
    short_for = [row.why for row in found.rows if row.why == "not enough time left"]
    assert len(short_for) == 5
    assert {row.outcome for row in found.rows} == {Outcome.NOT_TESTED}


def test_artifact_files_are_written_with_a_list_of_missing_ones(tmp_path: Path) -> None:
    folder = tmp_path / "explain"
    (folder / "old").mkdir(parents=True)
    others = guide_for(Flagged(), folder, "bad_1")
    assert any("shrinkfx has not made" in text for text in others.left_out)
    assert [path.name for path in folder.iterdir()] == ["old"]
    (folder / ".shrinkfx").touch()
    found = guide_for(Flagged(), folder, "bad_1")
    names = {f"{path.relative_to(folder)}" for path in folder.rglob("*.*")}
    names.remove(".shrinkfx")
    assert names == {"sources/a.wrapper.cpp", "inductor.log"}
    assert {file.name for file in found.files} == names
    assert [text.partition(":")[0] for text in found.left_out] == ["TORCH_TRACE"]
    assert [path.name for path in tmp_path.iterdir()] == ["explain"]


def test_too_large_artifact_is_omitted_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guide, "MOST_BYTES", 6)
    found = guide_for(Flagged(), tmp_path / "explain", "bad_1")
    assert [file.name for file in found.files] == ["inductor.log"]
    assert any("a.wrapper.cpp: " in text for text in found.left_out)
