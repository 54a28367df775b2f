"""The page of a run: what is on it, and that nothing in it runs but its own script."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import itertools
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pages import KERNEL, SOURCE, explained, searched, transformer

from shrinkfx.failure.verdict import Outcome
from shrinkfx.findings.chain import Chain
from shrinkfx.findings.code import CodeLine
from shrinkfx.findings.compiling import StopPoint
from shrinkfx.findings.operators import Operator, OperatorMismatch
from shrinkfx.findings.record import Explanation
from shrinkfx.findings.values import WrongValue
from shrinkfx.program.skeleton import Skeleton
from shrinkfx.protocol.kernel_values import Wrong
from shrinkfx.protocol.record import read_older
from shrinkfx.report.page.drawing import (
    MOST,
    Drawing,
    Fold,
    Light,
    Part,
    draw,
    draw_within,
    fold,
    lay_out,
    parts_of,
    parts_of_candidate,
    parts_of_listing,
)
from shrinkfx.report.page.page import (
    checks_of,
    draw_search_chart,
    find_steps,
    ranges,
    render_page,
    warnings,
)
from shrinkfx.report.page.record import (
    Check,
    CheckCounts,
    Run,
    SizeChange,
    Summary,
    find_failing_source,
)
from shrinkfx.run.explaining import report_folder
from shrinkfx.testing import ROWS, chain, listing, whole

EVIL = "</script><img src=x onerror=alert(1)>"


class Elements(html.parser.HTMLParser):
    """Collects elements as a browser would see them, and what scripts hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.lasttag = ""

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.scripts:
            self.scripts[-1] += data


@pytest.fixture(name="out", scope="module")
def _out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    return explained(searched(folder / "out", transformer(3)))


@pytest.fixture(name="text", scope="module")
def _text(out: Path) -> str:
    return report_folder(out).read_text()


# --- the page


def test_page_shows_the_findings(text: str) -> None:
    for told in (
        "index out of bounds: 0 &lt;= tmp1 &lt; 12L",
        "was reduced from 62 operators to 2",
        "Index 12 of size 12 in aten.roll.default (model.py:14, module needle).",
        "epilogue_fusion=False",
        "the original&#39;s kernel",
        "CUDA_LAUNCH_BLOCKING=1",
        SOURCE,
    ):
        assert told in text, told


def test_page_states_the_total_of_checks(out: Path, text: str) -> None:
    total = json.loads((out / "summary.json").read_text())["checks"]["total"]
    rows = text.count("<tr data-row=")
    assert "question" not in text.partition("<script")[0]
    assert f"{total} checks from" in text or f"{total} checks (and" in text
    assert ("to confirm" in text) is (rows > total)


def test_confirming_check_is_counted_apart_from_the_search() -> None:
    asked = Check(
        1, 0.0, "drop", "program", "fast", "ab", 3, frozenset(), Outcome.PASSED, "", 1
    )
    made = Run(
        "m.pt2", summary=Summary(checks=CheckCounts(2)), checks=(asked, asked, asked)
    )
    assert checks_of(made) == (2, 1)
    assert checks_of(replace(made, summary=Summary())) == (3, 0)
    figure = "<dt>checks</dt><dd>2<small>1 more to confirm</small></dd>"
    assert figure in render_page(made)


@pytest.mark.parametrize("module", ["", "layers.0"])
def test_module_column_is_shown_if_operators_have_modules(
    tmp_path: Path, module: str
) -> None:
    out = searched(tmp_path / "out", transformer(1))
    left = Operator("roll", "aten.roll.default", "model.py:14", module)
    (out / "explain.json").write_text(Explanation(operators=(left,)).to_line())
    text = report_folder(out).read_text()
    assert ("<th>module</th>" in text) is bool(module)
    assert ("<td>layers.0</td>" in text) is bool(module)


def test_page_loads_no_external_resources(text: str) -> None:
    found = Elements(text)
    assert not {"img", "iframe", "object", "embed"} & {*found.tags}
    told = [value for name, value in found.attributes if name in ("src", "href")]
    assert all(value and value.startswith(("#", "data:,")) for value in told)
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "@import" not in text


def test_content_policy_allows_only_the_script_of_the_page(text: str) -> None:
    found = Elements(text)
    data, script = found.scripts
    json.loads(data)
    policies = [v for n, v in found.attributes if n == "content" and v]
    (policy,) = [each for each in policies if "script-src" in each]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not [name for name, _ in found.attributes if name.startswith("on")]


def test_markup_in_names_is_escaped(tmp_path: Path) -> None:
    plain = transformer(1)
    nodes = [replace(plain.node(name), scope=EVIL, source=EVIL) for name in plain.graph]
    out = explained(searched(tmp_path / "out", Skeleton(nodes, plain.outputs), EVIL))
    summary = json.loads((out / "summary.json").read_text())
    summary |= {"failure": f"assert in run: {EVIL}", "warnings": [EVIL]}
    summary["versions"] = {EVIL: EVIL}
    (out / "summary.json").write_text(json.dumps(summary))
    told = Explanation(cause=(EVIL,), culprits=(Operator(EVIL, EVIL, EVIL, EVIL),))
    (out / "explain.json").write_text(told.to_line())
    (out / "repro.py").write_text(f"# {EVIL}\n")
    found = Elements(report_folder(out).read_text())
    assert "img" not in found.tags
    assert len(found.scripts) == 2
    assert not [name for name, _ in found.attributes if name.startswith("on")]


def test_page_of_an_empty_run_states_that_no_result_is_known() -> None:
    text = render_page(Run("model.pt2"))
    assert "no result is written yet" in text
    assert "The cause is not determined" in text


def test_page_does_not_warn_of_a_mismatch_that_is_the_cause() -> None:
    mix = Operator("mix", "my.mix.default")
    found = Explanation(
        culprits=(mix,),
        mismatches=(OperatorMismatch(mix, "promises more than there is"),),
    )
    said = "fake-kernel mismatch: other (my.other.default) has strides [1]"
    lie = said.replace("other", "mix")
    guards = "with CHECK=1 it fails otherwise: Error in op: torch.ops.my.mix.default"
    run = Run("model.pt2", summary=Summary(warnings=(lie, said, guards)))
    assert warnings(run) == [lie, said, guards]
    run = replace(run, explanation=found)
    assert warnings(run) == [said]
    assert said in render_page(run)
    assert "my.mix.default) has strides" not in render_page(run)


def test_page_of_a_thousand_nodes_is_fast_and_small(
    tmp_path: Path,
) -> None:
    out = explained(searched(tmp_path / "out", transformer(35)))
    began = time.process_time()
    path = report_folder(out)
    assert time.process_time() - began < 1.0
    assert path.stat().st_size < 1_000_000


def test_incomplete_or_broken_explanation_file_is_tolerated(out: Path) -> None:
    path = out / "explain.json"
    before = path.read_text()
    told = json.loads(before)
    del told["chain"]["dies"], told["schema"]
    told["gone_by_now"] = 1
    path.write_text(json.dumps(told))
    try:
        assert "cpp_fused_mul_roll_0" in report_folder(out).read_text()
        path.write_text("[")
        assert "explain.json cannot be read" in report_folder(out).read_text()
    finally:
        path.write_text(before)


# --- drawings


def names_in(drawing: Drawing) -> list[str]:
    return [box.label for box in drawing.boxes]


def test_kept_operators_are_lit_and_the_culprit_is_marked() -> None:
    parts = parts_of(chain("x", "relu", "tanh", "exp"), {"tanh", "exp"}, {"exp"})
    lights = {part.name: part.light for part in parts}
    assert lights == {
        "x": Light.VALUE,
        "relu": Light.GONE,
        "tanh": Light.KEPT,
        "exp": Light.CULPRIT,
        "output": Light.VALUE,
    }
    drawing = draw(parts, "before")
    assert (drawing.operators_left, drawing.of) == (2, 3)
    assert len(drawing.lit) == 2  # to exp, and from it to what is returned


def test_small_program_is_not_folded() -> None:
    items = fold(parts_of(chain("x", *(f"relu_{i}" for i in range(20))), ()))
    assert not any(isinstance(item, Fold) for item in items)


def test_large_program_is_folded_by_module() -> None:
    drawing = draw(parts_of(transformer(20), {"roll"}), "before")
    assert {"layers.0", "layers.19", "aten.roll"} <= {*names_in(drawing)}
    assert len(drawing.boxes) <= MOST + 2
    first = next(each for each in drawing.inside if each.title == "layers.0")
    assert first.of == 19
    assert "aten.split.Tensor" in names_in(first)


def test_large_program_without_modules_is_folded_by_runs() -> None:
    drawing = draw(parts_of(chain("x", *(f"f_{i}" for i in range(500))), ()), "before")
    assert len(drawing.boxes) <= MOST + 2
    assert sum(each.of for each in drawing.inside) == 500
    assert all(len(each.boxes) <= MOST for each in drawing.inside)


def test_folds_are_disjoint_runs_in_order() -> None:
    def go_through(drawing: Drawing) -> None:
        spans = [box.span for box in drawing.boxes if box.span[1]]
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        assert len({box.opens for box in drawing.boxes if box.opens}) == len(
            drawing.inside
        )
        for each in drawing.inside:
            go_through(each)

    go_through(draw(parts_of(transformer(40), {"roll"}), "before"))


def test_folds_with_kept_operators_are_opened_first() -> None:
    parts = parts_of(transformer(40), {"gelu_7"})
    drawing = draw(parts, "before")
    assert "aten.gelu" in names_in(drawing)
    assert len(drawing.boxes) <= MOST * 3 // 2 + 2


def test_boxes_are_below_their_operands_without_overlap() -> None:
    edges = [(0, 2), (1, 2), (2, 3), (0, 3), (3, 5), (0, 5), (4, 5)]
    laid = lay_out(7, edges)
    assert all(laid.places[a][1] < laid.places[b][1] for a, b in edges)
    assert len(set(laid.places)) == 7
    assert laid.places[4][1] == laid.places[5][1] - 1  # an input beside its reader
    for (a, b), line in zip(edges, laid.lines, strict=True):
        assert (line[0], line[-1]) == (laid.places[a], laid.places[b])
        heights = [y for _, y in line]
        assert heights == [*range(int(heights[0]), int(heights[-1]) + 1)]


def test_edges_take_less_room_than_boxes() -> None:
    chained = [(n, n + 1) for n in range(7)]
    laid = lay_out(8, sorted([*chained, *((n, 7) for n in range(5))]))
    assert laid.columns < 3


def test_box_is_centered_below_its_operands() -> None:
    laid = lay_out(3, [(0, 2), (1, 2)])
    assert [x for x, _ in laid.places] == [0.0, 1.0, 0.5]


@given(
    st.integers(2, 30).flatmap(
        lambda boxes: st.tuples(
            st.just(boxes),
            st.sets(st.tuples(st.integers(0, boxes - 1), st.integers(0, boxes - 1))),
        )
    )
)
def test_boxes_never_overlap(program: tuple[int, set[tuple[int, int]]]) -> None:
    boxes, pairs = program
    laid = lay_out(boxes, sorted((a, b) for a, b in pairs if a < b))
    rows: dict[float, list[float]] = {}
    for x, y in laid.places:
        rows.setdefault(y, []).append(x)
    for row in map(sorted, rows.values()):
        assert row[0] > -1e-6
        assert row[-1] < laid.columns - 1 + 1e-6
        assert all(b - a > 1 - 1e-6 for a, b in itertools.pairwise(row))


def test_layout_of_an_empty_graph_is_empty() -> None:
    assert lay_out(0, []).places == ()


def test_candidate_is_drawn_with_its_inputs() -> None:
    candidate = whole(chain("x", "relu", "tanh", "exp"))
    left = replace(candidate, keep=frozenset({"tanh"})).normalised()
    reads = {part.name: part.reads for part in parts_of_candidate(left)}
    assert reads == {"relu": (), "tanh": ("relu",), "output": ("tanh",)}


def test_printed_program_is_drawn_by_statement() -> None:
    some = listing("a = torch.ops.aten.relu.default(x)\nreturn (a,)")
    parts = parts_of_listing(some, {"a"})
    assert [part.name for part in parts][-2:] == ["a", "output"]
    assert parts[-2].label == "a = aten.relu(x)"
    assert parts[-2].light is Light.CULPRIT


# --- the course of a search


def check(
    number: int,
    operators: int,
    outcome: Outcome | None = Outcome.REPRODUCED,
    strategy: str = "drop_nodes",
    digest: str = "",
) -> Check:
    kept = frozenset({"a"})
    said = digest or str(number)
    asked = number, float(number), strategy, "program", "fast", said, operators, kept
    caught = outcome is Outcome.DIFFERENT
    return Check(*asked, outcome, "", 1.0, is_by_catch=caught)


def test_steps_are_checks_that_became_the_smallest_candidate() -> None:
    checks = [
        check(1, 10, digest="a"),
        check(2, 10, strategy="source", digest="a"),
        check(3, 5, Outcome.PASSED),
        check(4, 4, Outcome.DIFFERENT),
        check(5, 6, digest="b"),
        check(6, 6, Outcome.PASSED, strategy="source", digest="b"),
        check(7, 7),
        check(8, 90, strategy="ablation"),
        check(9, 7, None),
    ]
    assert find_steps(checks) == {1, 7}


@pytest.mark.parametrize("over", ["checks", "seconds"])
def test_each_check_is_drawn_in_its_lane_and_within_the_chart(over: str) -> None:
    checks = [check(1, 10), check(2, 4, Outcome.DIFFERENT), check(3, 0, None, "other")]
    drawn = draw_search_chart(checks, 20, find_steps(checks), over)
    assert [lane.name for lane in drawn.lanes] == ["drop_nodes", "other"]
    assert sum(len(lane.dots) for lane in drawn.lanes) == 3
    for dot in drawn.dots:
        assert drawn.left <= dot.x <= drawn.right
        assert drawn.top <= dot.y <= drawn.bottom


@pytest.mark.parametrize("count", [0, 1, 3])
def test_chart_of_few_checks_can_be_drawn(count: int) -> None:
    checks = [check(i + 1, 1) for i in range(count)]
    assert len(draw_search_chart(checks, 1, frozenset(), "seconds").dots) == count


def test_reduced_program_is_drawn_with_the_names_of_its_repro() -> None:
    program = listing(
        "n0 = torch.ops.aten.relu.default(features_table_weight)\nreturn n0",
        features_table_weight=ROWS,
    )
    fault = Operator("n0", "aten.relu.default")
    run = Run("m", listing=program, explanation=Explanation(culprits=(fault,)))
    shown = render_page(run)
    drawn = shown[shown.index("<b>After</b>") :]
    assert (
        "x: float32[2, 3]\nfeatures_table_weight in the input program</title>" in drawn
    )
    assert 'class="box culprit"' in drawn
    assert "relu = aten.relu(x)" in drawn
    assert "features_table_weight in the input program" not in render_page(
        replace(run, anonymous=True)
    )


def test_ranges_are_abbreviated() -> None:
    assert ranges([7, 0, 1, 2, 3]) == "0-3,7"
    assert ranges([]) == ""


# --- the cause


def test_failing_source_is_the_file_with_the_quoted_lines() -> None:
    lines = KERNEL.splitlines()
    code = tuple(CodeLine(i, lines[i - 1].strip(), i == 6) for i in (5, 6, 7))
    known = Explanation(chain=Chain(code=code))
    found = find_failing_source(known, {"wrapper.cpp": "x", "k.cpp": f"\n\n{KERNEL}"})
    assert found is not None
    assert (found.name, found.marked) == ("k.cpp", 8)
    assert "AOTI_TORCH_CHECK" in found.lines[found.marked - 1]
    alone = find_failing_source(known, {})
    assert alone is not None
    assert (alone.name, alone.first, alone.marked) == ("", 5, 6)
    assert alone.counted_in == "the kernel source"


def test_line_at_fault_is_found_within_its_kernel() -> None:
    code = (CodeLine(2, "    x = no()", at_fault=True),)
    known = Explanation(chain=Chain(kernel="k_1", code=code))
    text = "def k_0(x):\n    x = no()\n\ndef k_1(x):\n    x = no()\n"
    files = {"a/wrapper.cpp": text, "a/benchmark.py": text, "a/k_1.py": f"\n{text}"}
    found = find_failing_source(known, files)
    assert found is not None
    assert (found.name, found.marked) == ("a/k_1.py", 6)


def test_kernel_without_a_line_at_fault_is_found_by_its_name() -> None:
    known = Explanation(values=WrongValue(kernel="cpp_fused_mul_roll_0"))
    files = {"wrapper.cpp": "cpp_fused_mul_roll_0(x)", "k.cpp": KERNEL}
    found = find_failing_source(known, files)
    assert found is not None
    assert (found.name, found.marked) == ("k.cpp", 1)
    assert find_failing_source(Explanation(), files) is None


@pytest.mark.parametrize(
    ("found", "links"),
    [
        (
            Explanation(
                values=WrongValue(
                    wrong=Wrong(wrong=3, of=8, first=(0, 1), got="1", expected="2"),
                    kernel="k",
                    launch=2,
                    launches=3,
                    value="buf1",
                )
            ),
            ["wrong value", "first", "kernel"],
        ),
        (
            Explanation(
                compile_error=StopPoint(
                    (), "lowering", place="lowering.py:roll", message="no"
                )
            ),
            ["stopped at", "raised in"],
        ),
        (Explanation(chain=Chain(index="tmp0", value=3)), ["index"]),
    ],
)
def test_links_lead_from_the_failure_to_its_origin(
    found: Explanation, links: list[str]
) -> None:
    text = render_page(Run("model.pt2", explanation=found))
    assert re.findall(r'<li><span class="what">(.*?)</span>', text) == links


def test_summary_of_another_version_is_read_partially() -> None:
    told = read_older(Summary, {"operators": {"before": 3, "after": 1}, "is_new": 1})
    assert told.operators == SizeChange(3, 1)
    assert told.cpu_seconds == {}


def test_wide_statements_are_truncated_with_a_full_tooltip() -> None:
    code = "a_name_as_long_as_export_makes_them = torch.ops.aten.index_select(x, 0, y)"
    two = [Part(name, code, code, ()) for name in "ab"]
    both = Part("c", code, code, ("a", "b"))
    parts = [*two, both, *(Part(name, code, code, ("c",)) for name in "def")]
    wide, fits = draw(parts, "after", 52), draw_within(1100, parts, "after")
    assert wide.width > 1100 >= fits.width
    assert {box.more for box in fits.boxes} == {code}
    assert all(box.label.endswith("\u2026") for box in fits.boxes)
    assert draw_within(wide.width, parts, "after") == wide
    assert draw_within(10, parts, "after") == draw(parts, "after", 20)


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("aten.add.Tensor", "add \u2026 add"),
        ("aten.squeeze.dim", "squeez \u2026 squeez"),
        ("layers.0", "layers \u2026 layers"),
        ("mul", "mul \u2026 mul"),
    ],
)
def test_fold_of_a_run_is_labelled_by_both_ends(label: str, shown: str) -> None:
    """And not by the end of a text: ``...Tensor ... user``."""
    names = [f"n{number}" for number in range(300)]
    reads = [(), *((name,) for name in names)]
    parts = [Part(n, label, label, r) for n, r in zip(names, reads, strict=False)]
    folds = [box for box in draw(parts, "before", 20).boxes if box.opens]
    assert {box.label for box in folds} == {shown}
