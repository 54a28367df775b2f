"""Kernels wide enough for 16 threads fail in one way, however few the cores are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shrinkfx.check.client.server import Server
from shrinkfx.check.oracle import CheckClient, Limits, Meter
from shrinkfx.check.script import ScriptRunner
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.failure.verdict import Observation
from shrinkfx.protocol.requests import CheckOptions

PLANTS = Path(__file__).parents[1] / "failure" / "plants.py"
ROWS, COLUMNS, RUNS = 4096, 64, 10
# Of OMP_NUM_THREADS torch takes no more than there are cores.
SIXTEEN = {"cpp.threads": 16}
NO_LIBRARY = {"XDG_CACHE_HOME": "/dev/null"}
LIMITS = Limits(300.0, 8 << 30)
BOUNDS = Signature(Kind.ASSERT, Stage.RUN, "index out of bounds")

pytestmark = pytest.mark.aoti


class Gathers(torch.nn.Module):
    """Asserts of each index that it is one."""

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return (x.mul(2).gather(0, index).exp() + 1) * 2


class Throws(torch.nn.Module):
    """Does so, and throws then: ``atan`` of ``plants.py`` always does."""

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return torch.atan(x.gather(0, index)) + 1


def rows(bad: slice) -> tuple[Tensor, Tensor]:
    """Make inputs with indices out of bounds in some rows."""
    values = torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))
    index = torch.zeros(ROWS, COLUMNS, dtype=torch.long)
    index[bad] = ROWS
    return values, index


NOWHERE, EVERYWHERE, FIRST = slice(0), slice(None), slice(ROWS // 16)


@contextmanager
def compiler(
    module: type[torch.nn.Module],
    inputs: tuple[Tensor, ...],
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[CheckClient]:
    """Run a program on inputs; it is compiled by whoever is first in the folder."""
    model, failing = folder / f"{module.__name__}.pt2", folder / "inputs.pt"
    if not model.exists():
        with torch.no_grad():
            torch.export.save(torch.export.export(module(), rows(NOWHERE)), model)
    torch.save(inputs, failing)
    with Server(
        model=model,
        inputs=failing,
        preloads=[str(PLANTS)],
        inductor=SIXTEEN,
        environment=environment or {},
    ) as server:
        package = str(model.with_suffix(".package.pt2"))
        yield CheckClient(
            server, LIMITS, CheckOptions(package=package, reference=False)
        )


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wide")


def seen(of: CheckClient, times: int = RUNS) -> list[Observation]:
    return [of.run_input_program()[0] for _ in range(times)]


def one_failure(observations: list[Observation]) -> Signature:
    """Require all to be the same failure."""
    signatures = {observation.signature for observation in observations}
    (signature,) = signatures
    assert signature is not None, observations[0]
    return signature


def test_assertion_has_the_same_signature_in_every_run(folder: Path) -> None:
    with compiler(Gathers, rows(EVERYWHERE), folder) as wide:
        observations = seen(wide)
    assert BOUNDS.admits(one_failure(observations))
    for observation in observations:
        assert "terminate called in thread 0 of 16 after" in observation.log
        assert "Exception raised from cpp_fused" in observation.log


def test_exception_has_the_same_signature_in_every_run(folder: Path) -> None:
    with compiler(Throws, rows(NOWHERE), folder) as wide:
        found = one_failure(seen(wide))
    assert (found.kind, found.stage) == (Kind.EXCEPTION, Stage.RUN)
    assert "planted: element 3" in found.text


@pytest.mark.every_run
def test_failure_of_the_first_part_takes_precedence_in_every_run(
    folder: Path,
) -> None:
    with compiler(Throws, rows(FIRST), folder) as wide:
        observations = seen(wide)
    assert BOUNDS.admits(one_failure(observations))
    assert all("planted: element 3" in each.log for each in observations)


def test_nan_input_is_reported_in_every_run(folder: Path) -> None:
    values, index = rows(NOWHERE)
    values[:, 3] = torch.nan
    with compiler(Gathers, (values, index), folder) as wide:
        package = str(folder / "asserts.pt2")
        wide = wide.with_options(inductor={"nan_asserts": True}, package=package)
        found = one_failure(seen(wide, 3))
    assert (found.kind, found.detail) == (Kind.CHECK_INPUTS, "At least one NaN")


def test_healthy_program_passes_in_sixteen_threads(folder: Path) -> None:
    with compiler(Gathers, rows(NOWHERE), folder) as wide:
        assert [observation.signature for observation in seen(wide)] == [None] * RUNS


def test_assertion_has_one_signature_without_the_terminate_handler(
    folder: Path,
) -> None:
    for inputs, module in [(rows(EVERYWHERE), Gathers), (rows(FIRST), Throws)]:
        with compiler(module, inputs, folder, NO_LIBRARY) as wide:
            assert "exceptions of other threads may be lost" in wide.server.log  # type: ignore[attr-defined]
            observations = seen(wide)
        assert not [o for o in observations if "terminate called in" in o.log]
        assert BOUNDS.admits(one_failure(observations))


SCRIPT = f"""
import torch

compiled = torch._inductor.aoti_load_package("Gathers.package.pt2")
index = torch.full(({ROWS}, {COLUMNS}), {ROWS})
actual = compiled(torch.rand({ROWS}, {COLUMNS}), index)
print("no longer fails")
"""


def test_script_in_a_bare_python_fails_with_the_same_assertion(folder: Path) -> None:
    script, package = folder / "repro.py", folder / "Gathers.package.pt2"
    script.write_text(SCRIPT)
    if not package.exists():
        with compiler(Gathers, rows(EVERYWHERE), folder) as wide:
            wide.run_input_program()
    with Server(environment=None) as bare:
        runner = ScriptRunner(bare, LIMITS, Meter())
        run: Callable[..., Observation] = functools.partial(runner.run, fresh=True)
        observations = [run([script, package]) for _ in range(4)]
    assert BOUNDS.admits(one_failure(observations))
    assert not [o for o in observations if "terminate called in" in o.log]
