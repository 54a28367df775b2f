"""What to say and to do where a program does not fail as asked."""

from __future__ import annotations

from shrinkfx.check.baseline.runs import Bounds, Runs
from shrinkfx.errors import NotReproducible
from shrinkfx.failure.signature import Kind
from shrinkfx.failure.verdict import Observation


def not_seen(wanted: str, tried: list[tuple[Runs, Bounds]]) -> NotReproducible:
    """Say how often it ran, and for how long if that has ended the runs."""
    seen = [s for runs, _ in tried for s in (*runs.seen, *runs.later)]
    said = list(dict.fromkeys(s.in_words for s in seen))
    made = sum(runs.made for runs, _ in tried)
    why = [bounds.why_no_more(runs) for runs, bounds in tried]
    advice = "\n".join(dict.fromkeys(filter(None, [_advice(seen, wanted), *why])))
    spent_s = sum(bounds.spent_s for _, bounds in tried)
    seconds = spent_s if any(why) and spent_s else None
    return NotReproducible(wanted, made, said, advice, seconds)


def _advice(seen: list[Observation], wanted: str) -> str:
    kinds = {s.signature.kind.value for s in seen if s.signature}
    if kinds:
        return f"to reduce what it does: --until {sorted(kinds)[0]}"
    if all(s.passed for s in seen):
        silent = ["a silent memory error? --until ima"] if wanted != Kind.IMA else []
        return "\n".join([*_WHAT_DIFFERS, *silent, *_WHERE_ELSE])
    return "see above"


_WHAT_DIFFERS = (
    "what may differ from the failing run:",
    "inputs other than the exported ones? --inputs FILE; other sizes? --dynamic-sweep",
    "its settings? --inductor-config KEY=VALUE, --env KEY=VALUE",
    "lowerings or passes of its own? --preload FILE",
)

_WHERE_ELSE = (
    "on CUDA only? --device cuda --backend interpreter checks each access of a kernel",
    "now and then, on a busy machine? keep this one busy, with --baseline-runs 1000",
)
