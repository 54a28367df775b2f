"""What a path leads to: a program, or what PyTorch has left of a failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.dumped import LAUNCHER, RUNNABLE, logged

from shrinkfx.errors import LoadError, UsageError
from shrinkfx.intake.dump import Kind, is_dump, read_dump


def put(folder: Path, *paths: str, text: str = LAUNCHER) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.mark.parametrize("name", ["model.pt2", "model", "no.py", "no.txt"])
def test_path_that_is_no_dump_yields_none(tmp_path: Path, name: str) -> None:
    if not name.startswith("no"):
        (tmp_path / name).write_bytes(b"PK\3\4")
    assert read_dump(tmp_path / name) is None


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("minifier_launcher.py", LAUNCHER, Kind.MINIFIER),
        ("repro.py", LAUNCHER, Kind.MINIFIER),
        ("repro.py", RUNNABLE, Kind.RUNNABLE),
        ("fx_graph_runnable_12.txt", RUNNABLE, Kind.RUNNABLE),
        ("dedicated_log_torch_trace_x.log", logged(RUNNABLE), Kind.RUNNABLE),
        ("twice.log", logged(RUNNABLE, RUNNABLE), Kind.RUNNABLE),
    ],
)
def test_dump_kind_is_decided_by_file_content(
    tmp_path: Path, name: str, text: str, kind: Kind
) -> None:
    put(tmp_path, name, text=text)
    script = read_dump(tmp_path / name)
    assert script is not None
    assert (script.kind, script.path) == (kind, tmp_path / name)


def test_graph_is_extracted_from_log_unchanged(tmp_path: Path) -> None:
    put(tmp_path, "a.log", text=logged(RUNNABLE))
    script = read_dump(tmp_path / "a.log")
    assert script is not None
    assert script.text.strip() == RUNNABLE.strip()


@pytest.mark.parametrize("graphs", [(), (RUNNABLE, RUNNABLE + "x = 1\n")])
def test_log_without_exactly_one_graph_is_refused(
    tmp_path: Path, graphs: tuple[str, ...]
) -> None:
    put(tmp_path, "a.log", text=logged(*graphs))
    with pytest.raises(UsageError, match=rf"{len(graphs)} runnable graphs .*tlparse"):
        read_dump(tmp_path / "a.log")


BELOW = "torch_compile_debug/run_2026-pid_1/"


@pytest.mark.parametrize(
    "there",
    [
        ("minifier_launcher.py", "checkpoints/4.py"),
        ("minifier/minifier_launcher.py",),
        ("run_2026-pid_1/minifier/minifier_launcher.py",),
        (f"{BELOW}minifier/minifier_launcher.py", "repro.py"),
        (f"{BELOW}torchinductor/model__0_forward_1.0/fx_graph_runnable.py",),
        ("repro.py", "other.py"),
    ],
)
def test_dump_script_is_found_in_folder(tmp_path: Path, there: tuple[str, ...]) -> None:
    put(tmp_path, *there)
    script = read_dump(tmp_path)
    assert script is not None
    assert script.path == tmp_path / there[0]
    assert is_dump(tmp_path)


TRACE = "dedicated_log_torch_trace_{}.log"


def test_single_torch_trace_log_is_found_in_folder(tmp_path: Path) -> None:
    put(tmp_path, TRACE.format("rank_0_x"), text=logged(RUNNABLE))
    put(tmp_path, "other.log", text=logged(RUNNABLE))
    script = read_dump(tmp_path)
    assert script is not None
    assert script.text.strip() == RUNNABLE.strip()
    assert is_dump(tmp_path)
    put(tmp_path, "repro.py")
    script = read_dump(tmp_path)
    assert script is not None
    assert script.path == tmp_path / "repro.py"


def test_folder_with_several_trace_logs_is_refused(tmp_path: Path) -> None:
    names = [TRACE.format(n) for n in range(2)]
    put(tmp_path, *names, text=logged(RUNNABLE))
    with pytest.raises(
        UsageError, match="2 logs of TORCH_TRACE: pass one of them"
    ) as refused:
        read_dump(tmp_path)
    assert all(str(tmp_path / name) in str(refused.value) for name in names)


def test_folder_with_several_dumps_is_refused(tmp_path: Path) -> None:
    put(tmp_path, *(f"run_{n}/minifier/minifier_launcher.py" for n in range(12)))
    with pytest.raises(UsageError, match="12 dumps: pass one of them") as refused:
        read_dump(tmp_path)
    assert str(refused.value).endswith("and 4 more")


def test_empty_folder_is_no_dump(tmp_path: Path) -> None:
    assert not is_dump(tmp_path)
    with pytest.raises(LoadError, match=r"is a folder without a dump"):
        read_dump(tmp_path)


@pytest.mark.parametrize("name", ["journal.sqlite", "summary.json"])
def test_run_folder_is_no_dump(tmp_path: Path, name: str) -> None:
    put(tmp_path, "repro.py", name)
    assert not is_dump(tmp_path)
    with pytest.raises(UsageError, match="--resume"):
        read_dump(tmp_path)


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LoadError, match="cannot be read"):
        read_dump(tmp_path / "a.py")
