"""Which programs a triage runs, and with which options."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shrinkfx.campaign.programs import Program, find_new_programs, find_programs
from shrinkfx.errors import LoadError, UsageError


def write(path: Path, size: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def test_programs_of_a_folder_come_smallest_first_with_names_of_their_own(
    tmp_path: Path,
) -> None:
    large, small = write(tmp_path / "a.pt2", 90), write(tmp_path / "deep/a.pt2", 10)
    write(tmp_path / "notes.txt")
    options = ("--until", "nan")
    assert find_programs([tmp_path], options) == [
        Program(str(small), options, "a"),
        Program(str(large), options, "a-2"),
    ]


def test_programs_in_the_folder_of_a_run_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a.pt2")
    write(tmp_path / "run/journal.sqlite")
    write(tmp_path / "run/minimal.pt2")
    write(tmp_path / "run/intake/program.pt2")
    assert [each.name for each in find_programs([tmp_path], ())] == ["a"]


def test_folder_of_a_run_may_be_given(tmp_path: Path) -> None:
    write(tmp_path / "run/journal.sqlite")
    write(tmp_path / "run/capture/program-1.pt2")
    (program,) = find_programs([tmp_path / "run/capture"], ())
    assert program.name == "program-1"


def test_capture_runs_as_a_whole(tmp_path: Path) -> None:
    write(tmp_path / "small.pt2", 5)
    capture = write(tmp_path / "train.py-1/capture/end.json").parent
    for name in ("program-1.pt2", "program-2.pt2"):
        write(capture / name)
    small, captured = find_programs([tmp_path], ())
    assert small.name == "small"
    assert captured == Program(str(capture), (), "train")
    assert find_programs([capture], ()) == [captured]


def test_debug_dump_runs_as_a_whole(tmp_path: Path) -> None:
    minifier = write(tmp_path / "run_1/minifier/minifier_launcher.py").parent
    write(minifier / "checkpoints/exported_program.pt2", 200)
    write(tmp_path / "run_1/torchinductor/model_1/fx_graph_runnable.py")
    graph = write(tmp_path / "run_2/torchinductor/model_0/fx_graph_runnable.py", 90)
    write(tmp_path / "run_2/a.pt2", 20)
    found = find_programs([tmp_path], ())
    assert [(each.name, each.path) for each in found] == [
        ("a", str(tmp_path / "run_2/a.pt2")),
        ("model_0", str(graph)),
        ("run_1", str(minifier / "minifier_launcher.py")),
    ]


def test_capture_appears_once_it_has_ended(tmp_path: Path) -> None:
    capture = make_old(write(tmp_path / "run/capture/program-1.pt2")).parent
    assert find_new_programs([tmp_path], (), ()) == []
    end = write(capture / "end.json")
    assert find_new_programs([tmp_path], (), ()) == []
    make_old(end)
    assert [each.name for each in find_new_programs([tmp_path], (), ())] == ["run"]


def make_old(path: Path) -> Path:
    os.utime(path, (1e9, 1e9))
    return path


def test_program_appears_once_it_no_longer_changes(tmp_path: Path) -> None:
    old, own = [Program(str(write(tmp_path / "x/a.pt2")), (), "a")], ("--strict",)
    new = write(tmp_path / "y/a.pt2")
    assert find_new_programs([tmp_path], own, old) == []
    make_old(new)
    assert find_new_programs([tmp_path], own, old) == [Program(str(new), own, "a-2")]
    assert find_new_programs([tmp_path / "none"], own, old) == []


def test_each_program_has_a_name_of_its_own(tmp_path: Path) -> None:
    for name in ("x/a.pt2", "y/a.pt2", "a-2.pt2"):
        write(tmp_path / name)
    names = [each.name for each in find_programs([tmp_path], ())]
    assert len(set(names)) == 3


def test_only_files_are_programs(tmp_path: Path) -> None:
    write(tmp_path / "a.pt2")
    (tmp_path / "b.pt2").mkdir()
    (tmp_path / "c.pt2").symlink_to(tmp_path / "none")
    assert [each.name for each in find_programs([tmp_path], ())] == ["a"]


def test_program_may_run_with_several_options_and_not_without_them(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a.pt2")
    lines = [{"program": "a.pt2", "options": [word]} for word in ("--strict", "-v")]
    listed = tmp_path / "all.jsonl"
    listed.write_text("\n\n".join(map(json.dumps, lines)) + "\n")
    found = find_programs([listed, tmp_path], ())
    assert [each.options for each in found] == [("--strict",), ("-v",)]


def test_list_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_bytes(b"\xff")
    with pytest.raises(LoadError, match="cannot be read as text"):
        find_programs([tmp_path / "all.jsonl"], ())


def test_program_that_is_named_twice_runs_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pt2")
    assert len(find_programs([path, tmp_path], ())) == 1


def test_list_gives_each_program_options_of_its_own(tmp_path: Path) -> None:
    program = write(tmp_path / "a.pt2")
    lines = [{"program": "a.pt2", "options": ["--until", "ima"]}]
    listed = write(tmp_path / "all.jsonl")
    listed.write_text("\n".join(map(json.dumps, lines)))
    expected = Program(str(program), ("--build", "stock", "--until", "ima"), "a")
    assert find_programs([listed], ["--build", "stock"]) == [expected]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 1 is not an entry"),
        ("[]", "line 1 is not an entry"),
        ("{}", "line 1 is not an entry"),
        ('{"program": "a.pt2", "options": [3]}', "options must be a list of strings"),
        ('{"program": "a.pt2", "options": "-v"}', "options must be a list of strings"),
        ('{"program": "b.pt2"}', "b.pt2 does not exist"),
    ],
)
def test_bad_line_of_a_list_is_named(line: str, reason: str, tmp_path: Path) -> None:
    write(tmp_path / "a.pt2")
    (tmp_path / "all.jsonl").write_text(line)
    with pytest.raises(LoadError, match=reason):
        find_programs([tmp_path / "all.jsonl"], ())


def test_path_without_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        find_programs([tmp_path / "none"], ())
    with pytest.raises(UsageError, match=r"contains no \.pt2"):
        find_programs([tmp_path], ())
