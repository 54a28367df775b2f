"""The page of a run, rendered by the template ``page.html`` in this folder.

The template escapes all values because names and texts come from users' files. The
content security policy allows only the page's own script, by its hash, and no requests.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources

import jinja2
from markupsafe import Markup

from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.decisions import by_hand, format_decisions
from shrinkfx.program.display_text import short_kernels
from shrinkfx.program.listing.names import rename_values, short_names
from shrinkfx.program.listing.printed_program import (
    PrintedProgram,
    describe_minimality,
    group_kinds_by_claim,
)
from shrinkfx.report.caveats import is_about_mismatch
from shrinkfx.report.page.drawing import BOX_HEIGHT, Drawing, draw, draw_within
from shrinkfx.report.page.links import list_links
from shrinkfx.report.page.parts import (
    Part,
    parts_of,
    parts_of_candidate,
    parts_of_listing,
)
from shrinkfx.report.page.record import Run, SizeChange, Summary
from shrinkfx.report.page.search_chart import (
    count,
    draw_search_chart,
    find_steps,
    mark_of,
    time,
)
from shrinkfx.report.summary import DIGITS
from shrinkfx.version import __version__

_LABEL = 20
"""Maximum characters of an operator's name in a box."""

_WIDE = 1100
"""Width of the page for a drawing, in pixels."""


def render_page(run: Run) -> str:
    """Return the HTML of a run's page."""
    accepted = find_steps(run.checks)
    explanation, summary = run.explanation, run.summary
    culprits = [each.name for each in explanation.culprits] if explanation else []
    before, after = _before(run, culprits), _after(run, culprits)
    script = _file("page.js")
    operators = summary.sizes.get("operators", SizeChange(None, None))
    start = summary.cut or operators.before or len(_names(run))
    axes = ("checks", "seconds") if run.checks else ()
    kind, head = split_failure(run)
    decided = explanation.decisions if explanation else None
    cause = explanation.cause if explanation else summary.cause
    return _template().render(
        run=run,
        s=summary,
        e=explanation,
        kind=kind,
        head=head,
        lead=format_lead(run),
        figures=figures(run),
        sections=_sections(run),
        warnings=warnings(run),
        cause=[short_kernels(text) for text in cause],
        links=list_links(explanation) if explanation else (),
        before=before,
        before_note=format_form_remark(run, before.of) if before else "",
        after=after,
        after_count=count(operators.after, "operator"),
        height=BOX_HEIGHT,
        charts=[draw_search_chart(run.checks, start, accepted, axis) for axis in axes],
        search_summary=_describe_search(run, len(accepted), start),
        decided=decided,
        decisions=format_decisions(decided, _signature(summary)) if decided else (),
        by_hand=by_hand(decided) if decided else (),
        guide=explanation.guide if explanation else None,
        claims=group_kinds_by_claim(summary.minimal_by_kind),
        claimed=describe_minimality(summary.minimal_by_kind),
        rows=[(check, mark_of(check, accepted)) for check in run.checks],
        digits=DIGITS,
        about=list_run_facts(run),
        version=__version__,
        data=_data_to_json(run),
        css=Markup(_file("page.css")),
        js=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return environment.from_string(_file("page.html"))


@cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _before(run: Run, culprits: Sequence[str]) -> Drawing | None:
    if run.program is None:
        return None
    remaining = run.reduced.keep if run.reduced is not None else frozenset[str]()
    return draw(parts_of(run.program, remaining, culprits), "before", _LABEL)


def _after(run: Run, culprits: Sequence[str]) -> Drawing | None:
    if run.listing is not None:
        parts = _as_in_repro(run.listing, culprits, is_anonymous=run.anonymous)
        return draw_within(_WIDE, parts, "after")
    if run.reduced is not None:
        return draw_within(_WIDE, parts_of_candidate(run.reduced, culprits), "after")
    return None


def _as_in_repro(
    listing: PrintedProgram, culprits: Sequence[str], *, is_anonymous: bool
) -> list[Part]:
    """List the parts of the reduced program, with the names of the repro next to it."""
    if is_anonymous:
        return parts_of_listing(listing, culprits)
    names = short_names(listing)
    main = names.values[listing.main.name]
    wanted = [main.get(name, name) for name in culprits]
    return parts_of_listing(rename_values(listing, names), wanted, names.inverse())


def _sections(run: Run) -> list[tuple[str, str]]:
    explanation = run.explanation
    has_decisions = explanation and (explanation.decisions or explanation.guide)
    known = (
        ("why", "Why", True),
        ("program", "Program", True),
        ("search", "Search", run.checks),
        ("kernel", "Kernel", run.source),
        ("decisions", "Decisions", has_decisions),
        ("sizes", "Sizes", run.swept),
        ("checks", "Checks", run.checks),
        ("about", "Run", True),
    )
    return [(name, title) for name, title, is_there in known if is_there]


def _describe_search(run: Run, accepted: int, cut: int) -> str:
    steps = count(accepted, "step")
    checked, to_confirm = checks_of(run)
    checks = count(checked, "check")
    checks += f" (and {to_confirm:,} more to confirm)" if to_confirm else ""
    caught = sum(check.is_by_catch for check in run.checks)
    also = f", {count(caught, 'other failure')}" if caught else ""
    cached = run.summary.cached
    repeats = f" {count(cached, 'repeated candidate')} needed no further check."
    known = repeats if cached else ""
    down = f"from {cut:,} operators{format_form_remark(run, cut)} down"
    return f"{checks} {down}, {steps}{also}.{known}"


def _signature(summary: Summary) -> Signature:
    """Parse the stage from the failure's text: ``assert in run: ...``."""
    kind = Kind(summary.kind) if summary.kind in set(Kind) else Kind.EXCEPTION
    stage = summary.failure.partition(": ")[0].rpartition(" in ")[2]
    return Signature(kind, Stage(stage) if stage in set(Stage) else Stage.RUN)


def _data_to_json(run: Run) -> dict[str, object]:
    """Return the data of the page's script, which adds no content to the page."""
    order = {name: i for i, name in enumerate(_names(run))}
    remaining = run.reduced.keep if run.reduced is not None else frozenset[str]()
    return {
        "folder": run.folder,
        "left": ranges(order[name] for name in remaining if name in order),
        "checks": [
            {
                "number": check.number,
                "strategy": check.strategy,
                "form": check.form,
                "build": check.build,
                "digest": check.digest,
                "operators": check.operators,
                "outcome": check.came,
                "message": check.message,
                "seconds": round(check.seconds, 1),
                "keep": ranges(order[name] for name in check.keep if name in order),
            }
            for check in run.checks
        ],
    }


def _names(run: Run) -> Sequence[str]:
    """Return the names of the program's operators, in program order."""
    return run.program.operators if run.program is not None else ()


def ranges(numbers: Iterable[int]) -> str:
    """Encode numbers compactly: ``0-3,7``."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


def split_failure(run: Run) -> tuple[str, str]:
    """Split the failure into its kind and its message."""
    kind, _, text = short_kernels(run.summary.failure).partition(": ")
    if run.swept and not run.summary.failure:
        return "a sweep over sizes", run.model
    return (kind, text) if text else ("", kind or run.model)


def format_lead(run: Run) -> str:
    """Return one or two sentences on the result."""
    summary = run.summary
    sizes = summary.sizes.get("operators")
    if sizes is None or sizes.after is None:
        return f"{run.model}: no result is written yet." if not run.swept else run.model
    before, after = count(sizes.before, "operator"), f"{sizes.after:,}"
    text = f"{run.model} was reduced from {before} to {after}."
    if summary.runs:
        text += (
            f" repro.py failed in the same way in {summary.failed} of {summary.runs} "
            "runs in an empty folder."
        )
    else:
        text += " repro.py was not verified."
    if summary.stopped:
        text += f" The search stopped early: {summary.stopped}."
    return text


def format_form_remark(run: Run, operators: int) -> str:
    """Return a remark if the graph form has another operator count than the file.

    The graph form that is reduced may have more: one in-place operator becomes several.
    """
    sizes = run.summary.sizes.get("operators")
    if sizes is None or sizes.before in (None, operators):
        return ""
    return f" (in the form that is reduced; {sizes.before:,} in the file)"


def checks_of(run: Run) -> tuple[int, int]:
    """Return the number of the search's checks, and of those that confirm."""
    checks = run.summary.checks or len(run.checks)
    return checks, max(0, len(run.checks) - checks)


def figures(run: Run) -> list[tuple[str, str, str]]:
    """Return the key figures: each a name, a value and a note."""
    summary = run.summary
    found = []
    for name in ("operators", "nodes", "inputs"):
        size = summary.sizes.get(name)
        if size is not None and size.before is not None and size.after is not None:
            note = ""
            if name == "operators":
                note = "1-minimal" if summary.minimal else "not shown to be minimal"
            found.append((name, f"{size.before:,} \u2192 {size.after:,}", note))
    if run.checks:
        checks, to_confirm = checks_of(run)
        more = f"{to_confirm:,} more to confirm" if to_confirm else ""
        found.append(("checks", f"{checks:,}", more))
    if summary.seconds:
        cpu = sum(summary.cpu_seconds.values())
        found.append(("time", time(summary.seconds), f"{cpu:,.0f} CPU-seconds"))
    if min(summary.rate) < 1:
        rates = f"{summary.rate[0]:.0%} \u2192 {summary.rate[1]:.0%}"
        found.append(("runs that fail", rates, "flaky"))
    if summary.runs:
        found.append(("repro fails in", f"{summary.failed} of {summary.runs}", "runs"))
    return found


def warnings(run: Run) -> list[str]:
    """List other possible causes, without the mismatch that the cause states."""
    caveats = [*run.summary.warnings]
    mismatch = run.explanation.culprit_mismatch if run.explanation else None
    if mismatch is None:
        return caveats
    culprit = mismatch.operator.operator
    return [text for text in caveats if not is_about_mismatch(text, culprit)]


def list_run_facts(run: Run) -> list[tuple[str, str]]:
    """Return the rows of the section about the run."""
    summary = run.summary
    versions = ", ".join(f"{name} {value}" for name, value in summary.versions.items())
    rows = [
        ("program", run.model),
        ("made by", run.command),
        ("status", summary.status),
        ("seen on", versions),
    ]
    return [(name, value) for name, value in rows if value]
