"""What PyTorch 2.11's loader of packages leaves below /tmp, and who removes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shrinkfx.system import scratch

Leave = Callable[..., Path]


@pytest.fixture
def leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Leave:
    """Leave what a loader unpacks, in the place of ``/tmp``."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(scratch, "PLACE", place)

    def leave(name: str, compiled_in: str, mode: int = 0o700, text: str = "") -> Path:
        folder = place / name
        model = folder / "model" / "data" / "aotinductor" / "model"
        model.mkdir(parents=True)
        folder.chmod(mode)
        commands = f"// Compile cmd\n// g++ -c -o {compiled_in}/inductor/cab/cab.o\n"
        (model / "cab.wrapper.cpp").write_text(f"{text}\n{commands}")
        (model / "cab.wrapper.so").write_bytes(b"\0" * 1000)
        return folder

    return leave


def test_packages_unpacked_by_a_child_are_removed_and_others_kept(leave: Leave) -> None:
    own = leave("AbC123", "/scratch/server-1/child-7")
    of_a_fork = leave("AbC124", "/scratch/server-1/fork-2/child-7")
    of_a_server = leave("AbC125", "/scratch/server-11/child-7")
    of_a_user = leave("AbC126", "/home/me")
    scratch.remove_packages("/scratch/server-1/child-")
    assert not own.exists()
    assert all(other.exists() for other in (of_a_fork, of_a_server, of_a_user))


def test_packages_compiled_in_a_removed_folder_are_removed(
    leave: Leave, tmp_path: Path
) -> None:
    server = tmp_path / "server-1"
    (server / "child-1").mkdir(parents=True)
    left = leave("AbC123", f"{server}/fork-2/child-7")
    beside = leave("AbC124", f"{server}1/child-7")
    scratch.remove_with_packages(server)
    assert not server.exists()
    assert not left.exists()
    assert beside.exists()


def test_packages_are_found_if_the_folder_is_given_as_a_symlink(
    leave: Leave, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    left = leave("AbC123", f"{tmp_path}/disk/child-7")
    scratch.remove_packages(f"{tmp_path}/link/child-")
    assert not left.exists()


def test_packages_writable_by_other_users_are_kept(leave: Leave) -> None:
    open_to_all = leave("AbC123", "/scratch/child-7", mode=0o777)
    of_another_name = leave("notebook", "/scratch/child-7")
    scratch.remove_packages("/scratch/child-")
    assert open_to_all.exists()
    assert of_another_name.exists()


def test_link_is_not_followed(leave: Leave, tmp_path: Path) -> None:
    real = leave("AbC123", "/scratch/child-7").rename(tmp_path / "kept")
    (scratch.PLACE / "AbC123").symlink_to(real)
    scratch.remove_packages("/scratch/child-")
    assert (real / "model").exists()


def test_compile_command_is_searched_only_at_the_end_of_a_long_text(
    leave: Leave,
) -> None:
    mentions = "// /scratch/child-7/ is named far from the end\n" + "// \n" * 50_000
    other = leave("AbC123", "/home/me", text=mentions)
    own = leave("AbC124", "/scratch/child-7", text="// \n" * 50_000)
    scratch.remove_packages("/scratch/child-")
    assert other.exists()
    assert not own.exists()


def test_missing_place_of_packages_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "PLACE", Path(os.devnull))
    scratch.remove_packages("/scratch/child-")
