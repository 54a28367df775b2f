"""Check that the central directory of a zip archive can be read in one way only.

Readers find the directory in different ways: by the position of its end, or by the
offset in the last record. An archive is as torch writes it if both agree, and if there
is nothing besides the directory and the members.
"""

from __future__ import annotations

import struct
from pathlib import Path
from zipfile import BadZipFile, ZipFile

_LOCAL = b"PK\x03\x04"
_LOCAL_BYTES = 30
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_LONG_END = struct.Struct("<4sQ2H2L4Q")
_ENCRYPTED = 0x1 | 0x40 | 0x2000


def require_one_meaning(path: Path, archive: ZipFile) -> None:
    """Refuse an archive whose members another reader may see differently.

    Raises:
        BadZipFile: with the reason.
    """
    entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    count, start = _read_directory(path)
    if not entries and not count:
        return
    if count != len(entries) or start != archive.start_dir:
        raise BadZipFile("its list is not where its end says")
    if entries[0].header_offset or not _begins(path):
        raise BadZipFile("it does not begin with its first member")
    if len({entry.filename for entry in entries}) < len(entries):
        raise BadZipFile("two members have one name")
    if any(entry.flag_bits & _ENCRYPTED for entry in entries):
        raise BadZipFile("it is encrypted, and torch encrypts nothing")
    starts = [*(entry.header_offset for entry in entries[1:]), start]
    for entry, following in zip(entries, starts, strict=True):
        least = _LOCAL_BYTES + len(entry.filename) + entry.compress_size
        if entry.header_offset + least > following:
            raise BadZipFile("its members overlap")


def _begins(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_LOCAL)) == _LOCAL


def _read_directory(path: Path) -> tuple[int, int]:
    """Read the number of entries in the central directory, and its offset."""
    length = path.stat().st_size
    tail = min(length, _END.size + _LOCATOR.size + _LONG_END.size)
    with path.open("rb") as file:
        file.seek(length - tail)
        data = file.read(tail)
    if len(data) < _END.size:
        raise BadZipFile("its end is cut off")
    end = length - _END.size
    name, disk, first, disk_count, count, size, start, comment = _END.unpack(
        data[-_END.size :]
    )
    if name != b"PK\x05\x06" or comment or disk or first or disk_count != count:
        raise BadZipFile("something follows its list")
    before = data[: -_END.size]
    if before[-_LOCATOR.size :][:4] == b"PK\x06\x07":
        end -= _LOCATOR.size + _LONG_END.size
        long = _read_zip64_record(before, end)
        for short, full, most in zip(
            (count, size, start), long, (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF), strict=True
        ):
            if short not in (full, most):
                raise BadZipFile("its list has two lengths")
        count, size, start = long
    if start + size != end:
        raise BadZipFile("its list does not end where the archive does")
    return count, start


def _read_zip64_record(data: bytes, place: int) -> tuple[int, int, int]:
    """Read the zip64 record, which torch always writes."""
    if len(data) < _LOCATOR.size + _LONG_END.size:
        raise BadZipFile("its end is cut off")
    _, _, offset, _ = _LOCATOR.unpack(data[-_LOCATOR.size :])
    name, bytes_, *_, disk_count, count, size, start = _LONG_END.unpack(
        data[-_LOCATOR.size - _LONG_END.size : -_LOCATOR.size]
    )
    invalid = offset != place or bytes_ != _LONG_END.size - 12 or disk_count != count
    if name != b"PK\x06\x06" or invalid:
        raise BadZipFile("its list has two ends")
    return count, size, start
