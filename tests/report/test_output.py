"""What is written, in which order it is tried, and what is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.doubles import PRINTED
from test_repro import PRINTED as SOURCE
from test_repro import about

from shrinkfx.errors import UsageError
from shrinkfx.failure.signature import Signature
from shrinkfx.preloads.bundle_builder import build_bundle
from shrinkfx.preloads.preload_bundle import (
    CustomCompilerCode,
    Definitions,
    Preload,
    PreloadBundle,
    PreloadCut,
)
from shrinkfx.program.uninstalled_files import UninstalledFiles
from shrinkfx.report.output import write_smallest_repro, write_surest
from shrinkfx.report.record import NoSource, ReproFiles
from shrinkfx.report.repro import DATA
from shrinkfx.system.folders import output_folder, remove_if_empty

SLICED = """
import torch

unrelated = 1

@torch.library.custom_op("mylib::mix", mutates_args=())
def mix(x: torch.Tensor) -> torch.Tensor:
    return x.clone()
"""


ANSWER = replace(PRINTED, source=SOURCE)


class FakeRunner:
    """Says that a script fails if its text satisfies a predicate."""

    def __init__(self, fails: Callable[[str], bool]) -> None:
        self._fails = fails
        self.texts: list[str] = []
        self.likely: list[bool] = []

    def fails(
        self, files: Sequence[Path], target: Signature, *, is_likely: bool = True
    ) -> bool:
        self.likely.append(is_likely)
        assert all(file.is_file() for file in files)
        self.texts.append(files[0].read_text(encoding="utf-8"))
        return self._fails(self.texts[-1])


def write(
    folder: Path,
    fails: Callable[[str], bool],
    preloads: Sequence[Preload] = (),
    embedded: Sequence[PreloadBundle] | None = None,
    no_source: NoSource | None = None,
    **changes: Any,
) -> tuple[ReproFiles, FakeRunner]:
    """Write a repro as the worker's answer would have it."""
    (folder / "minimal.pt2").write_bytes(b"program")
    (folder / DATA).write_bytes(b"values")
    runner = FakeRunner(fails)
    answer = replace(ANSWER, targets=("mylib.mix.default",), **changes)
    cuts = PreloadCut(), PreloadCut(whole=True)
    ways = [build_bundle(preloads, UninstalledFiles(), cut) for cut in cuts]
    asked = folder, answer, about(), ways, runner
    written = write_smallest_repro(*asked, embedded=embedded, no_source=no_source)
    return written, runner


def test_seeded_repro_is_tried_first_and_kept_if_it_fails(tmp_path: Path) -> None:
    written, runner = write(tmp_path, lambda text: True)
    assert len(runner.texts) == 1
    assert written.how == "source, seeded"
    assert [f.name for f in written.files] == ["repro.py"]
    assert not (tmp_path / DATA).exists()


def test_exact_weights_are_used_if_the_seeded_repro_passes(tmp_path: Path) -> None:
    written, runner = write(tmp_path, lambda text: 'data["weight_b"]' in text)
    assert written.how == "source, exact weights"
    assert written.fails
    assert (tmp_path / DATA) in written.files
    assert len(set(runner.texts)) == len(runner.texts)


def test_program_is_embedded_if_no_printed_source_fails(tmp_path: Path) -> None:
    written, _ = write(tmp_path, lambda text: "PROGRAM" in text)
    assert written.how == "the program itself"
    text = (tmp_path / "repro.py").read_text()
    assert "PROGRAM" in text
    assert NoSource.PASSES in text


def test_program_is_not_embedded_if_no_embedded_form_is_allowed(tmp_path: Path) -> None:
    written, runner = write(tmp_path, lambda text: "PROGRAM" in text, embedded=())
    assert written.is_source
    assert not written.fails
    assert not any("PROGRAM" in text for text in runner.texts)


def test_last_script_is_kept_if_no_script_fails(tmp_path: Path) -> None:
    written, runner = write(tmp_path, lambda text: False)
    assert not written.fails
    assert written.files[0].read_text() == runner.texts[-1]


def test_unprintable_program_is_embedded_at_once(tmp_path: Path) -> None:
    written, runner = write(tmp_path, lambda text: True, unprintable="a body")
    assert written.how == "the program itself"
    assert not written.is_source
    (text,) = runner.texts
    assert NoSource.UNPRINTED in text


def test_script_states_that_no_time_was_left_for_source(tmp_path: Path) -> None:
    reason = NoSource.NO_TIME
    written, runner = write(tmp_path, lambda text: True, no_source=reason)
    assert not written.is_source
    (text,) = runner.texts
    assert f"# {reason}, so this script loads the exported program." in text
    assert NoSource.PASSES not in text


def test_preload_slice_is_tried_before_the_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "ops.py"
    file.write_text(SLICED)
    preloads = [Preload(file.name, file)]
    written, runner = write(tmp_path, lambda text: "unrelated" in text, preloads)
    assert "unrelated" not in runner.texts[0]
    assert "def mix" in runner.texts[0]
    assert written.how.startswith("source")


def test_library_is_copied_next_to_the_repro(tmp_path: Path) -> None:
    library = tmp_path / "build" / "ops.so"
    library.parent.mkdir()
    library.write_bytes(b"elf")
    written, runner = write(tmp_path, lambda _: True, [Preload(str(library))])
    assert tmp_path / "ops.so" in written.files
    assert (
        """load_library(__file__.rpartition("/")[0] + "/ops.so")""" in runner.texts[0]
    )
    assert "# Beside:  files in the folder of this script: ops.so" in runner.texts[0]


def test_installed_module_is_imported(tmp_path: Path) -> None:
    _, runner = write(tmp_path, lambda _: True, [Preload("fbgemm_gpu")])
    assert "import fbgemm_gpu" in runner.texts[0]


def test_module_next_to_a_preload_is_embedded_in_the_script(tmp_path: Path) -> None:
    home = tmp_path / "code"
    home.mkdir()
    (home / "helper.py").write_text("SCALE = 2\n")
    (home / "ops.py").write_text(
        f"import helper\n{SLICED.replace('x.clone()', 'x * helper.SCALE')}"
    )
    preload = Preload(str(home / "ops.py"), home / "ops.py")
    written, runner = write(tmp_path, lambda _: True, [preload])
    assert [file.name for file in written.files] == ["repro.py"]
    assert "SCALE = 2" in runner.texts[0]
    assert "# Within:  the modules helper" in runner.texts[0]


def test_files_of_a_discarded_script_are_removed(tmp_path: Path) -> None:
    home = tmp_path / "build"
    home.mkdir()
    (home / "ops.so").write_bytes(b"elf")
    (tmp_path / "minimal.pt2").write_bytes(b"program")
    (tmp_path / DATA).write_bytes(b"values")
    with_it, without = (
        PreloadBundle(files=files) for files in ({"ops.so": home / "ops.so"}, {})
    )
    runner = FakeRunner(lambda text: "ops.so" not in text)
    written = write_smallest_repro(
        tmp_path, ANSWER, about(), [with_it, without], runner
    )
    assert written.carried == without
    assert not (tmp_path / "ops.so").exists()
    assert (home / "ops.so").exists()


def test_output_folders_are_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [output_folder(None, Path("a/model.pt2")) for _ in range(2)]
    assert names == [Path("shrinkfx-out/model-1"), Path("shrinkfx-out/model-2")]


def test_output_folders_of_concurrent_runs_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        model = Path("model.pt2")
        found = list(pool.map(lambda _: output_folder(None, model), range(50)))
    assert len(set(found)) == 50


def test_error_names_an_output_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--out .*file.*: name a folder"):
        output_folder(tmp_path / "file", Path("model.pt2"))


def test_only_an_empty_output_folder_is_removed(tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    full.mkdir()
    (full / "journal.sqlite").touch()
    remove_if_empty(empty)
    remove_if_empty(full)
    assert not empty.exists()
    assert full.exists()


def write_with(
    folder: Path, variables: dict[str, str], fails: Callable[[str], bool]
) -> tuple[ReproFiles, FakeRunner]:
    """Write a repro that was made where some variables were set."""
    for name in ("minimal.pt2", DATA):
        (folder / name).write_bytes(b"values")
    runner, told = FakeRunner(fails), about(environment={"KEPT": "1", **variables})
    ways, asked = [PreloadBundle()], list(variables)
    return write_smallest_repro(folder, ANSWER, told, ways, runner, asked), runner


def test_no_environment_query_is_made_if_no_variable_was_set(tmp_path: Path) -> None:
    written, runner = write_with(tmp_path, {}, lambda _: True)
    assert len(runner.texts) == 1
    assert (written.environment, written.not_needed) == ({"KEPT": "1"}, ())


def test_irrelevant_variables_are_dropped_in_one_query(tmp_path: Path) -> None:
    written, runner = write_with(tmp_path, {"A": "1", "B": "2"}, lambda _: True)
    assert len(runner.texts) == 2
    assert (written.environment, written.not_needed) == ({"KEPT": "1"}, ("A", "B"))
    assert written.fails
    assert (tmp_path / "repro.py").read_text() == runner.texts[1]
    assert '"A"' not in runner.texts[1]
    assert 'os.environ["KEPT"]' in runner.texts[1]


def test_variable_that_the_failure_needs_is_kept(tmp_path: Path) -> None:
    variables = {"A": "1", "B": "2", "C": "3"}
    written, runner = write_with(tmp_path, variables, lambda t: 'environ["B"]' in t)
    assert len(runner.texts) == 1 + 1 + 3
    assert written.environment == {"KEPT": "1", "B": "2"}
    assert written.not_needed == ("A", "C")
    text = (tmp_path / "repro.py").read_text()
    assert "environ[\"B\"] = '2'" in text
    assert '"A"' not in text
    assert '"C"' not in text


def test_option_of_inductor_that_the_failure_does_not_need_is_dropped(
    tmp_path: Path,
) -> None:
    for name in ("minimal.pt2", DATA):
        (tmp_path / name).write_bytes(b"values")
    record = about(inductor={"cpp.threads": 1, "freezing": True})
    runner = FakeRunner(lambda text: "freezing" in text)
    written = write_smallest_repro(
        *(tmp_path, ANSWER, record, [PreloadBundle()], runner),
        ["cpp.threads", "freezing"],
    )
    assert written.inductor == {"freezing": True}
    assert written.not_needed == ()
    assert "cpp.threads" not in (tmp_path / "repro.py").read_text()


def test_single_variable_is_queried_once(tmp_path: Path) -> None:
    written, runner = write_with(tmp_path, {"A": "1"}, lambda text: '"A"' in text)
    assert len(runner.texts) == 2
    assert written.environment == {"KEPT": "1", "A": "1"}
    assert (tmp_path / "repro.py").read_text() == runner.texts[0]


def test_variables_are_queried_in_the_failing_repro_form(tmp_path: Path) -> None:
    exact = 'data["weight_b"]'
    written, _ = write_with(tmp_path, {"A": "1"}, lambda text: exact in text)
    assert written.how == "source, exact weights"
    assert written.not_needed == ("A",)
    assert exact in (tmp_path / "repro.py").read_text()
    assert (tmp_path / DATA) in written.files


def test_variables_are_not_queried_if_no_script_fails(tmp_path: Path) -> None:
    written, runner = write_with(tmp_path, {"A": "1"}, lambda _: False)
    assert len(set(runner.texts)) == len(runner.texts)
    assert written.environment == {"KEPT": "1", "A": "1"}


IN_ASCII = """
import sys
from pathlib import Path
from test_output import Preload, SLICED, write

text = f"# größer\\n{SLICED}".replace("unrelated", "größe")
preload = Path(sys.argv[1]) / "ops.py"
preload.write_text(text, encoding="utf-8")
preloads = [Preload("ops.py", preload)]
_, runner = write(Path(sys.argv[1]), lambda text: "größe" in text, preloads)
assert "größe" in (Path(sys.argv[1]) / "repro.py").read_text(encoding="utf-8")
"""


def test_repro_is_utf_8_in_an_ascii_locale(tmp_path: Path) -> None:
    """In a process whose locale has no such letters."""
    here = Path(__file__).parent
    path = os.pathsep.join(map(str, (here.parents[1], here.parent, here)))
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    script = tmp_path / "in_ascii.py"
    script.write_text(IN_ASCII, encoding="utf-8")
    subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, **ascii_only, "PYTHONPATH": path},
        check=True,
    )


@pytest.mark.parametrize("unprintable", ["", "a loop"])
def test_surest_script_has_exact_values_or_an_embedded_program(
    tmp_path: Path, unprintable: str
) -> None:
    (tmp_path / "minimal.pt2").write_bytes(b"program")
    (tmp_path / DATA).write_bytes(b"values")
    answer, path = replace(ANSWER, unprintable=unprintable), tmp_path / "asked.py"
    written = write_surest(path, tmp_path, answer, about(), PreloadBundle())
    assert written.is_source == (not unprintable)
    assert ('data["weight_b"]' in path.read_text()) == (not unprintable)
    assert written.files[0] == path
    if not unprintable:
        assert written.files[1:] == (tmp_path / DATA,)


@pytest.mark.parametrize(
    ("needs_own", "rate", "expected"),
    [(True, 1.0, False), (False, 1.0, None), (True, 0.5, None)],
)
def test_repro_is_tried_first_without_custom_inductor_code(
    tmp_path: Path, needs_own: bool, rate: float, expected: bool | None
) -> None:
    """What a flaky repro does not show is not known not to fail."""
    (tmp_path / "minimal.pt2").write_bytes(b"program")
    (tmp_path / DATA).write_bytes(b"values")
    own = CustomCompilerCode(("lowerings: aten.relu",), ("ops.py",))
    line = Definitions("lowerings[relu] = print")
    ways = [PreloadBundle(bare=True), PreloadBundle((line,), in_compiler=own)]
    runner = FakeRunner(lambda text: not needs_own or "lowerings" in text)
    record = about()
    record = replace(record, failure=replace(record.failure, rate_after=rate))
    written = write_smallest_repro(tmp_path, ANSWER, record, ways, runner)
    assert "lowerings" not in runner.texts[0]
    assert (runner.likely[0], runner.likely[-1]) == (False, needs_own)
    assert ("lowerings" in written.files[0].read_text()) == needs_own
    assert written.fails_without_own is expected
    assert written.needs_own == (expected is False)
