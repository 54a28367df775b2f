"""Dumps that PyTorch makes of a failure here and now, each reduced for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import shrinkfx
from shrinkfx import api
from shrinkfx.events import BaselineFound, Event, NoteAdded
from shrinkfx.failure.signature import Kind
from shrinkfx.options.options import Options, Sweeping

pytestmark = pytest.mark.aoti

PLANT = """\
import torch
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import V

COSH = torch.ops.aten.cosh.default


def refuse(lower):
    def lower_unless_of_exp(*args):
        if V.graph.current_node.args[0].target is torch.ops.aten.exp.default:
            raise NotImplementedError("planted: cannot lower what is of exp")
        return lower(*args)

    lower_unless_of_exp.planted = True
    return lower_unless_of_exp


if not hasattr(lowerings[COSH], "planted"):
    lowerings[COSH] = refuse(lowerings[COSH])
"""

WRONG = """\
import torch
from torch._inductor import ir
from torch._inductor.lowering import lowerings
from torch._inductor.virtualized import ops

COSH = torch.ops.aten.cosh.default


def wrong_in_few_rows(lower):
    def lower_cosh(x):
        load = lower(x).make_loader()

        def read(index):
            rows = ops.index_expr(x.get_size()[0], torch.int64)
            few = ops.lt(rows, ops.constant(4, torch.int64))
            value = load(index)
            off = ops.add(value, ops.constant(1.0, torch.float32))
            return ops.where(few, off, value)

        kind = {"device": x.get_device(), "dtype": x.get_dtype()}
        return ir.Pointwise.create(inner_fn=read, ranges=x.get_size(), **kind)

    lower_cosh.planted = True
    return lower_cosh


if not hasattr(lowerings[COSH], "planted"):
    lowerings[COSH] = wrong_in_few_rows(lowerings[COSH])
"""

FAILS = """\
import contextlib
import logging
import plant
import torch


class Net(torch.nn.Module):
    def forward(self, x, w):
        y = torch.tanh(x @ w)
        return (y.exp().cosh() + y.shape[0]).sum(), y


args = torch.randn(5, 4), torch.randn(4, 3)
with contextlib.suppress(Exception):
    torch.compile(Net(), dynamic=True)(*args)
logging.getLogger("torch.__trace").handlers.clear()  # the graph alone shall be there
dims = {0: torch.export.Dim.AUTO}, None
program = torch.export.export(Net(), args, dynamic_shapes=dims)
with contextlib.suppress(Exception):
    configs = {"comprehensive_padding": False}
    torch._inductor.aoti_compile_and_package(program, inductor_configs=configs)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where ``TORCH_TRACE`` and ``DUMP_AOTI_MINIFIER`` have left a failure."""
    folder = tmp_path_factory.mktemp("dumps")
    (folder / "plant.py").write_text(PLANT)
    (folder / "fails.py").write_text(FAILS)
    variables = {"TORCH_TRACE": str(folder / "trace"), "DUMP_AOTI_MINIFIER": "1"}
    subprocess.run(
        [sys.executable, "-W", "ignore", "fails.py"],
        cwd=folder,
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
    )
    return folder


@pytest.mark.every_run
def test_graph_of_torch_trace_log_is_reduced(folder: Path, tmp_path: Path) -> None:
    (log,) = (folder / "trace").iterdir()
    said: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, NoteAdded):
            said.append(event.text)

    reduction = shrinkfx.minify(
        log,
        run_code=True,
        preload=[folder / "plant.py"],
        keep="all",
        no_explain=True,
        out=tmp_path / "out",
        listener=listen,
    )
    assert_reduced(reduction)
    assert reduction.summary["dynamic_dims"]["before"] == 4
    assert any("2 of 2 inputs have generated values" in text for text in said)


def test_minifier_dump_is_reduced_by_resume_after_dump_is_deleted(
    folder: Path, tmp_path: Path
) -> None:
    dump = tmp_path / "moved"
    shutil.copytree(folder / "torch_compile_debug", dump)
    out = tmp_path / "out"

    def stop(event: Event) -> None:
        if isinstance(event, BaselineFound):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shrinkfx.minify(
            dump,
            preload=[folder / "plant.py"],
            keep="all",
            no_explain=True,
            out=out,
            listener=stop,
        )
    shutil.rmtree(dump)
    reduction = api.resume(out)
    assert isinstance(reduction, api.Reduction)
    assert_reduced(reduction)
    text = reduction.repro.read_text()
    assert "comprehensive_padding" not in text  # the failure does not need it
    assert b"comprehensive_padding" in (out / "journal.sqlite").read_bytes()
    assert str(tmp_path) not in text


def test_minifier_dump_is_swept(folder: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    asked = Options(
        folder / "torch_compile_debug",
        preload=(str(wrong),),
        sweeping=Sweeping(examples=4, max_elements=1000),
        out=tmp_path / "out",
    )
    swept = api.sweep(asked)
    (finding,) = swept.findings
    assert (swept.status, swept.exit_code) == ("found", 6)
    assert finding.found.signature.kind is Kind.MISMATCH
    assert [*finding.sizes.values()] == [2]
    assert [*(finding.nearest or {}).values()] == [4]
    assert (tmp_path / "out" / "intake" / "program.pt2").is_file()


def assert_reduced(reduction: api.Reduction) -> None:
    assert (reduction.status, reduction.operators[1]) == ("reduced", 2)
    assert "planted: cannot lower what is of exp" in str(reduction.seen)
    assert reduction.verified == (3, 3)
