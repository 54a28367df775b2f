"""The page of a run with ``--anonymous``: no name of the user's model is on it."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.pages import SOURCE, explained, searched, transformer

from shrinkfx.findings.chain import Layout
from shrinkfx.findings.operators import Operator, OperatorMismatch
from shrinkfx.findings.record import Explanation
from shrinkfx.journal.journal import Journal
from shrinkfx.program.skeleton import Role, Skeleton
from shrinkfx.report.anonymous import make_name_remover
from shrinkfx.report.record import EMBEDDED
from shrinkfx.run.explaining import report_folder
from shrinkfx.testing import feed, operator, skeleton

PLANTED = (
    *("dosage_ids", "quuxlayers", "gizmoneedle", "wobble_table", "serve_quux"),
    *("secretnet", "hushgate", "hushnode", "70717", "quuxops", "embargo"),
)
"""Parts of names and numbers; none of them may be on the page."""

LINE = "serve_quux.py:41"


def planted() -> Skeleton:
    """Build a program whose every name is the user's own."""
    plain = transformer(2)
    new = {
        "ids": "dosage_ids",
        "w": "p_quuxlayers_wobble_table",
        "matmul_0": "hushnode",
    }
    nodes = []
    for name in plain.graph:
        node = plain.node(name)
        scope = node.scope.replace("layers", "quuxlayers").replace(
            "needle", "gizmoneedle"
        )
        target = "secretnet.hushgate.default" if name == "matmul_0" else node.target
        value = node.value
        if value is not None and name not in ("tanh", "roll", "mul"):  # is cut away
            value = replace(value, shape=("70717", "embargo"))
        nodes.append(
            replace(
                node,
                name=new.get(name, name),
                target=target,
                operands=tuple(new.get(each, each) for each in node.operands),
                value=value,
                scope=scope,
                source=LINE if node.role is Role.OPERATOR else "",
            )
        )
    return Skeleton(nodes, [new.get(each, each) for each in plain.outputs])


def plant(out: Path) -> None:
    """Put the names into all that a run leaves in words."""
    with closing(Journal(out / "journal.sqlite")) as journal:
        run = journal.fact("run")["options"]
        run |= {"name": "serve_quux.py", "preload": ["/home/me/quuxops.py"]}
        run |= {"command": "shrinkfx --capture --anonymous -- python serve_quux.py"}
        journal.note("run", {"options": {**run, "anonymous": True}})
        said = "assert in run: secretnet::hushgate at /srv/serve_quux.py:41, 70717"
        journal.db.write(f"UPDATE checks SET signature = '{said}'")
    summary = json.loads((out / "summary.json").read_text())
    summary |= {
        "failure": "assert in run: dosage_ids is refused by hushnode",
        "warnings": [
            "fake-kernel mismatch: hushnode (secretnet.hushgate.default) is wrong",
            f"quuxlayers.0.attention.norm at {LINE} reads wobble_table",
        ],
        "other_failures": [
            {
                "kind": "nan",
                "stage": "compare",
                "text": "70717 of secretnet",
                "checks": 2,
                "operators": 9,
                "candidate": "abc123",
            }
        ],
        "suspects": [
            {
                "operator": "secretnet.hushgate.default",
                "node": "hushnode",
                "source": LINE,
                "weight": 1.0,
                "why": f"is given dosage_ids at {LINE}",
            }
        ],
    }
    (out / "summary.json").write_text(json.dumps(summary))
    roll = Operator("roll", "aten.roll.default", LINE, "gizmoneedle")
    told = json.loads((out / "explain.json").read_text())
    text = (
        json.dumps(told)
        .replace("model.py:14", LINE)
        .replace('"needle"', '"gizmoneedle"')
    )
    text = text.replace("needle)", "gizmoneedle)")
    known = Explanation.from_json(json.loads(text))
    given = Layout("dosage_ids", "input", ("4",), ("1",), "i64", made_by=(roll,))
    chain = known.chain
    assert chain is not None
    chain = replace(chain, inputs=(given,), cause=(f"input dosage_ids of {roll}.",))
    lie = OperatorMismatch(roll, "has a fake kernel that lies", "/home/me/quuxops.py:3")
    known = replace(known, chain=chain, mismatches=(lie,), cause=(lie.sentence,))
    (out / "explain.json").write_text(known.to_line())
    kernel = out / "explain" / "sources" / SOURCE
    comments = (
        f"// {LINE}, code: y = self.gizmoneedle(dosage_ids)\n"
        "/* in quuxlayers.0\n   by serve_quux */\n"
        "auto quuxlayers_wobble_table = constants->at(1);  // wobble_table\n"
    )
    kernel.write_text(comments + kernel.read_text())


@pytest.fixture(name="out")
def _out(tmp_path: Path) -> Path:
    out = explained(searched(tmp_path / "out", planted(), "serve_quux.pt2"))
    plant(out)
    return out


def found_in(text: str) -> list[str]:
    return [name for name in PLANTED if name in text]


def test_anonymous_page_has_no_model_names(out: Path) -> None:
    path = report_folder(out)
    text = path.read_text()
    assert found_in(text) == []
    assert path.read_text() == report_folder(out).read_text()


def test_page_that_is_not_anonymous_has_the_model_names(out: Path) -> None:
    with closing(Journal(out / "journal.sqlite")) as journal:
        run = journal.fact("run")["options"]
        journal.note("run", {"options": {**run, "anonymous": False}})
    text = report_folder(out).read_text()
    assert found_in(text) == [*PLANTED]


def test_anonymous_page_still_describes_the_run(out: Path) -> None:
    text = report_folder(out).read_text()
    for told in (
        "The program was reduced from",
        "shrinkfx --capture --anonymous -- ...",
        "aten.roll",
        "custom.operator_1",
        "<b>nan</b> in compare</td>",
        "cpp_fused_mul_roll_0",
        "tmp0 &lt; 12L",
        "is refused by",
        "m2.0.m",
        "Names and sizes of the model are omitted.",
    ):
        assert told in text, told
    assert 'class="at-fault"' in text
    assert text.count("<tr data-row=") > 5


def test_line_at_fault_keeps_its_number_without_comments(out: Path) -> None:
    text = report_folder(out).read_text()
    number = re.search(r'class="at-fault"><i>(\d+)</i><code>\s*AOTI_TORCH_CHECK', text)
    kernel = (out / "explain" / "sources" / SOURCE).read_text().splitlines()
    assert number is not None
    assert "AOTI_TORCH_CHECK" in kernel[int(number[1]) - 1]


def test_anonymous_page_omits_a_repro_with_an_embedded_program(
    out: Path,
) -> None:
    (out / "repro.py").write_text("# assert in run\nprogram = load('d29iYmxl')\n")
    assert "d29iYmxl" in report_folder(out).read_text()
    summary = json.loads((out / "summary.json").read_text())
    (out / "summary.json").write_text(json.dumps({**summary, "repro_form": EMBEDDED}))
    assert "d29iYmxl" not in report_folder(out).read_text()


def test_anonymous_page_shows_the_repro_without_its_header(out: Path) -> None:
    (out / "repro.py").write_text(
        "# Failure: secretnet fails\n# 70717\n\nimport torch\n"
    )
    text = report_folder(out).read_text()
    assert '<pre id="repro">import torch\n</pre>' in text
    assert found_in(text) == []


def test_anonymous_page_omits_the_input_program(out: Path) -> None:
    text = report_folder(out).read_text()
    assert "The input program is omitted, because the run is anonymous." in text
    assert "data-opens" not in text.partition("<script")[0]


# --- names


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("given embedding_table[2]", "given weight_1[2]"),
        ("self.embedding.table", "self.weight_1"),
        ("L__self___embedding_table", "weight_1"),
        (
            "embedding_tables, p_embedding_table_2",
            "embedding_tables, p_embedding_table_2",
        ),
        ("of input tokens", "of input input_0"),
        ("aten.tokens stays", "aten.tokens stays"),
        ("x and w are", "x and w are"),
        ("acme::gate and acme.gate.default", "custom.operator_1 and custom.operator_1"),
        ("in decoder.0.attn", "in m1.0.m2"),
        ("its bias_table is", "its weight_4 is"),
        ("serve.py", "FILE"),
        ("--decoder and --serve.py stay", "--decoder and --serve.py stay"),
    ],
)
def test_names_are_replaced_as_whole_words(text: str, shown: str) -> None:
    program = skeleton(
        {
            "tokens": "",
            "p_embedding_table": feed(Role.PARAMETER),
            "x": "",
            "p_w": feed(Role.PARAMETER),
            "p_decoder_0_bias_table": feed(Role.PARAMETER),
            "gate": operator("tokens x", target="acme.gate.default"),
            "add": operator(
                "gate p_embedding_table p_w",
                target="aten.add.Tensor",
                scope="decoder.0.attn",
            ),
        }
    )
    assert make_name_remover(program, (), {}, ["serve.py"])(text) == shown


def test_names_are_kept_without_a_program() -> None:
    assert make_name_remover(None, (), {}, ())("dosage_ids") == "dosage_ids"
