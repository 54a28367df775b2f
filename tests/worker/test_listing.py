"""An archive in which two readers would see different files is refused."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from damage import archive, members
from test_damaged_files import good_program

from shrinkfx.check.preflight import require_inputs, require_program
from shrinkfx.errors import LoadError

WEIGHT = "model/data/weights/weight_0"
LARGE = 3 << 20


def two_lists(good: bytes) -> bytes:
    """Name one member as it is before the place where one reader looks, and small."""
    out, listed, other = io.BytesIO(), b"", b""
    out.write(b"#!xx")  # so that the first member is not at the offset 0 either
    for name, data in members(good).items():
        data = bytes(LARGE) if name == WEIGHT else data
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = deflate.compress(data) + deflate.flush()
        sizes, place, path = (len(packed), len(data)), out.tell(), name.encode()
        head = (20, 0, 8, 0, 0, zlib.crc32(data))
        out.write(struct.pack("<4s5H3L2H", b"PK\3\4", *head, *sizes, len(path), 0))
        out.write(path + packed)
        for large in (True, False):
            seen = sizes if large or name != WEIGHT else (len(packed), 9)
            record = struct.pack("<4sH5H3L", b"PK\1\2", 20, *head, *seen)
            record += struct.pack("<5H2L", len(path), 0, 0, 0, 0, 0, place) + path
            listed, other = (
                (listed + record, other) if large else (listed, other + record)
            )
    count, start = len(members(good)), out.tell()
    out.write(listed + other)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(listed), start, 0)
    return out.getvalue() + end


def commented(good: bytes) -> bytes:
    out = io.BytesIO(good)
    with zipfile.ZipFile(out, "a") as changed:
        changed.comment = good
    return out.getvalue()


def repeated(good: bytes) -> bytes:
    out = io.BytesIO(good)
    with zipfile.ZipFile(out, "a") as changed, pytest.warns(UserWarning, match="Dup"):
        changed.writestr(WEIGHT, b"other")
    return out.getvalue()


def overlapping(good: bytes) -> bytes:
    """Have the last member begin where the first does."""
    end = good.rindex(b"PK\1\2")
    return good[: end + 42] + bytes(4) + good[end + 46 :]


def encrypted(good: bytes) -> bytes:
    at = good.rindex(b"PK\1\2") + 8
    return good[:at] + bytes([good[at] | 1]) + good[at + 1 :]


CHANGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "two lists": (two_lists, "does not end where"),
    "a prefix": (lambda good: b"\x7fELF" + good, "list does not end where"),
    "a comment": (commented, "follows its list|truncated"),
    "two of a name": (repeated, "one name"),
    "overlapping": (overlapping, "overlap"),
    "encrypted": (encrypted, "encrypted"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_ambiguous_archive_is_refused(name: str, tmp_path: Path) -> None:
    change, reason = CHANGES[name]
    path = tmp_path / "model.pt2"
    path.write_bytes(change(good_program()))
    for check in (require_program, require_inputs):
        with pytest.raises(LoadError, match=reason):
            check(path)


def test_archives_written_by_torch_and_zipfile_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(archive(members(good_program())))
    require_program(path)
    exported = torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),))
    torch.export.save(exported, path)
    require_program(path)
    for data in ((torch.ones(3),), {"args": (torch.ones(2, 2),), "kwargs": {}}):
        torch.save(data, path)
        require_inputs(path)
