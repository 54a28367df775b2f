"""Wrong values of kernels that are really compiled, or interpreted.

Each program has an innocent kernel in which the failure shows.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.whole_programs import reduced_program
from torch import Tensor, nn

from shrinkfx.check.listing import list_candidate
from shrinkfx.explain.cause import KnownFacts, explain
from shrinkfx.explain.reduced_program import ReducedProgram
from shrinkfx.explain.values import values
from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.values import WrongValue
from shrinkfx.protocol.choices import Build

REPROS = Path(__file__).parents[2] / "repros"


class Overflows(nn.Module):
    """What ``erfc`` gets wrong by 999 is infinite behind ``exp``, two kernels on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4))

    def forward(self, x: Tensor) -> Tensor:
        ordered = torch.sort(torch.erfc(x), -1).values
        product: Tensor = torch.exp(ordered) @ self.weight
        return product.sum(-1)


class Cosine(nn.Module):
    """Both operators are fused into one kernel."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cos(torch.erfc(x))


class Divides(nn.Module):
    """A norm's bound is lost in the first kernel, and it is the third that divides."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4))

    def forward(self, x: Tensor) -> Tensor:
        norm = x.norm(dim=-1, keepdim=True).clamp_min(1e-12).expand(3, 4)
        divisor: Tensor = norm @ self.weight
        return x / divisor


class Bags(nn.Module):
    """Sum the embeddings of the best column of each row, in a call that checks it."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(4, 2, mode="sum")

    def forward(self, x: Tensor) -> Tensor:
        bags: Tensor = self.bag(torch.argmax(x, -1).view(3, 1))
        return bags


class Wraps(nn.Module):
    """A sum of bytes that were negated, and must wrap before they are added."""

    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return x.mul(10).to(torch.uint8).neg().sum(self.dim)


WIDE = """
import torch
from torch._inductor.codegen.cpp import CppOverrides

torch._inductor.config.cpp.simdlen = 1
CppOverrides.neg = staticmethod(lambda x: f"(-static_cast<int64_t>({x}))")
"""


ONE_MORE = """
import torch
from torch._inductor.lowering import lowerings

aten = torch.ops.aten
find = lowerings[aten.argmax.default]


def one_more(*args, **options):
    return lowerings[aten.add.Tensor](find(*args, **options), 1)


lowerings[aten.argmax.default] = one_more
"""


def minimum(
    folder: Path,
    module: nn.Module,
    case: str | Path,
    kind: Kind,
    *,
    on_interpreter: bool = False,
) -> AbstractContextManager[ReducedProgram]:
    """Take a program whole for a minimum, with what a case of ``repros/`` plants.

    Args:
        case: its name, or a file of a test's own.
    """
    plant = case if isinstance(case, Path) else REPROS / case / "planted.py"
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    x[1] = 0.0
    return reduced_program(
        folder,
        module,
        (x,),
        target=Signature(kind, Stage.COMPARE),
        preload=plant,
        on_interpreter=on_interpreter,
    )


def find_wrong_value(asked: ReducedProgram) -> WrongValue:
    told = values(asked)
    assert told is not None
    return told


@pytest.mark.aoti
@pytest.mark.every_run
def test_wrong_compiled_kernel_is_found_before_kernels_showing_the_error(
    tmp_path: Path,
) -> None:
    case = "mismatch_wrong_constant"
    with minimum(tmp_path, Overflows(), case, Kind.NAN) as asked:
        told = find_wrong_value(asked)
    assert [operator.operator for operator in told.culprits] == ["aten.erfc.default"]
    assert told.culprits[0].line.startswith("test_real_values.py:")
    assert told.launch == 1
    assert told.agrees
    assert told.wrong
    assert told.wrong.largest == pytest.approx(999, rel=1e-3)
    assert told.wrong.exact == "eager"
    assert len(told.shown_by) >= 2
    assert told.unknown == ()
    assert "cpp_fused_erfc" in told.code[0].text  # the whole kernel
    assert any("(1000)" in line.text for line in told.code)


@pytest.mark.aoti
@pytest.mark.every_run
def test_lines_of_the_wrong_operator_are_marked_in_the_quoted_kernel(
    tmp_path: Path,
) -> None:
    case = "mismatch_wrong_constant"
    with minimum(tmp_path, Cosine(), case, Kind.MISMATCH) as asked:
        told = find_wrong_value(asked)
    assert [operator.operator for operator in told.culprits] == ["aten.erfc.default"]
    marks = {line.text.partition(" = ")[2]: line.at_fault for line in told.code}
    assert [at for text, at in marks.items() if "(1000)" in text] == [True]
    assert [at for text, at in marks.items() if "cos" in text] == [False]


@pytest.mark.aoti
@pytest.mark.parametrize("dim", [-1, None], ids=["row", "all"])
def test_operators_failing_only_when_fused_are_named_together(
    dim: int | None, tmp_path: Path
) -> None:
    """The sum of all stays fused where values are returned; that of a row does not."""
    plant = tmp_path / "wide.py"
    plant.write_text(WIDE)
    with minimum(tmp_path, Wraps(dim), plant, Kind.MISMATCH) as asked:
        told = find_wrong_value(asked)
    neg, total = [one.operator for one in told.culprits][-2:]
    assert neg == "aten.neg.default"
    assert total.startswith("aten.sum.")
    assert told.fused
    assert ", give a wrong result" in told.cause[0]
    assert told.cause[1] in (
        "The program passes if its inner values are returned, too.",
        "The program passes without fusion.",
    )


@pytest.mark.aoti
@pytest.mark.parametrize("as_listing", [False, True])
def test_producer_of_a_bad_argument_is_culprit_not_the_failing_call(
    tmp_path: Path, *, as_listing: bool
) -> None:
    plant = tmp_path / "one_more.py"
    plant.write_text(ONE_MORE)
    with minimum(tmp_path, Bags(), plant, Kind.EXCEPTION) as asked:
        ending = asked.ask(build=Build.FAST)
        assert ending is not None
        dies = classify_ending(ending).signature
        assert dies is not None
        dying = replace(asked, target=dies)
        if as_listing:  # as a run explains it
            data = tmp_path / "data"
            written, _ = list_candidate(asked.client, asked.candidate, data)
            assert written is not None
            listing = asked.candidate.with_listing(written.listing)
            with_data = asked.client.with_options(data=written.data or None)
            dying = replace(dying, candidate=listing).with_client(with_data)
        told = explain(dying, KnownFacts())
    assert "aten.argmax.default" in [one.operator for one in told.culprits]
    assert "embedding_bag" not in [one.name for one in told.culprits]
    assert told.compile_error is not None
    assert [one.name for one in told.compile_error.culprits] == ["embedding_bag"]
    assert "embedding_bag" in told.cause[-1]


@pytest.mark.torch
def test_interpreted_kernel_with_a_tiny_error_is_found(tmp_path: Path) -> None:
    case = "nan_in_one_row"
    with minimum(tmp_path, Divides(), case, Kind.NAN, on_interpreter=True) as asked:
        told = find_wrong_value(asked)
    assert [operator.operator for operator in told.culprits] == [
        "aten.clamp_min.default"
    ]
    assert told.tiny
    assert told.kernel.startswith("triton_")
