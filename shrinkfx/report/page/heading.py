"""The head and the foot of the page: the failure, the result, and the key figures."""

from __future__ import annotations

from shrinkfx.program.display_text import short_kernels
from shrinkfx.report.caveats import is_about_mismatch
from shrinkfx.report.page.record import Run
from shrinkfx.report.page.words import count, time


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
    return (
        f"{text} The search stopped early: {summary.stopped}."
        if summary.stopped
        else text
    )


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
    for name, what in (
        ("operators", "operators"),
        ("nodes", "nodes"),
        ("inputs", "inputs"),
    ):
        size = summary.sizes.get(name)
        if size is not None and size.before is not None and size.after is not None:
            note = ""
            if name == "operators":
                note = "1-minimal" if summary.minimal else "not shown to be minimal"
            found.append((what, f"{size.before:,} \u2192 {size.after:,}", note))
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
    caveats = run.summary.warnings
    mismatch = run.explanation.culprit_mismatch if run.explanation else None
    if mismatch is None:
        return [*caveats]
    return [
        text
        for text in caveats
        if not is_about_mismatch(text, mismatch.operator.operator)
    ]


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
