"""What is too much for the disk is refused before any of it is written."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.export import export

from shrinkfx.errors import LoadError
from shrinkfx.worker import disk_space
from shrinkfx.worker.disk_space import (
    require_space_for_recording,
    require_space_for_values,
    require_space_for_weights,
)
from shrinkfx.worker.eager.intermediates import EagerValues
from shrinkfx.worker.model import Inputs, Program


class Wide(torch.nn.Module):
    """Its input and its one value take 200 MB each, were they real; its weight 1 GB."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(1, device="meta").expand(5**12))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


ROWS = torch.empty(1, device="meta").expand(50_000_000)
PROGRAM = export(Wide(), (ROWS,))


@pytest.fixture(name="free")
def _free(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    disk = SimpleNamespace(free=1 << 40)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk)
    return disk


def test_recording_of_kernel_values_is_refused_without_disk_space(
    free: SimpleNamespace, tmp_path: Path
) -> None:
    """The weight, which nobody reads; the input, made and read; the value, returned."""
    needed = 5**12 * 4 + 4 * 200_000_000 + (64 << 20)
    free.free = needed
    require_space_for_recording(PROGRAM, tmp_path)
    free.free = needed - 1
    with pytest.raises(LoadError, match="what each kernel is given and makes"):
        require_space_for_recording(PROGRAM, tmp_path)


def test_message_names_the_disk_space_that_eager_values_take(
    free: SimpleNamespace, tmp_path: Path
) -> None:
    free.free = 470_000_000
    require_space_for_values(PROGRAM, 1, tmp_path)
    with pytest.raises(LoadError) as refused:
        require_space_for_values(PROGRAM, 2, tmp_path)
    assert refused.value.reason == (
        "the values of 2 eager runs, and what a check writes, take up to 0.9 GB of "
        "disk; 0.5 GB are free"
    )
    assert "set TMPDIR to a folder on a disk that has more" in str(refused.value.advice)
    assert "--max-disk" in str(refused.value.advice)


def test_folder_size_limit_bounds_disk_use(
    free: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "_allowed", None)  # as it was, in the end
    disk_space.limit_folder_size(tmp_path, 470_000_000)
    require_space_for_values(PROGRAM, 1, tmp_path)
    (tmp_path / "graph").mkdir()
    (tmp_path / "graph" / "values").write_bytes(bytes(8_000_000))
    with pytest.raises(LoadError, match=r"0\.5 GB are free"):
        require_space_for_values(PROGRAM, 1, tmp_path)
    disk_space.limit_folder_size(tmp_path, None)
    require_space_for_values(PROGRAM, 1, tmp_path)


def test_values_that_do_not_fit_on_disk_are_not_written(
    free: SimpleNamespace, tmp_path: Path
) -> None:
    example = Inputs((ROWS,), {})
    program = Program(PROGRAM, PROGRAM, example, example)
    values = EagerValues(tmp_path / "values", program)
    free.free = 100_000_000
    with pytest.raises(LoadError, match=r"up to 0\.5 GB of disk; 0\.1 GB are"):
        values.record(program)
    assert not list(tmp_path.iterdir())


def test_small_programs_are_not_refused_on_a_nearly_full_disk(
    free: SimpleNamespace, tmp_path: Path
) -> None:
    free.free = 2 << 20
    small = export(torch.nn.ReLU(), (torch.ones(3),))
    require_space_for_values(small, 2, tmp_path)
    require_space_for_weights(1000, tmp_path)


def test_weights_too_large_for_a_package_raise_enospc(
    free: SimpleNamespace, tmp_path: Path
) -> None:
    free.free = 4 << 30
    require_space_for_weights(800_000_000, tmp_path)
    with pytest.raises(OSError, match="No space left on device") as refused:
        require_space_for_weights(1_000_000_000, tmp_path)
    assert refused.value.errno == errno.ENOSPC
    assert "take 5.1 GB of disk, and 4.3 GB are free" in str(refused.value)
