"""The error for a program that does not fail as requested, with advice."""

from __future__ import annotations

from shrinkfx.check.baseline.recompile import advise_other_hash_seed
from shrinkfx.check.baseline.runs import Bounds, Runs
from shrinkfx.errors import NotReproducible
from shrinkfx.failure.signature import Kind
from shrinkfx.failure.verdict import Observation
from shrinkfx.wording import Flag, MessageText


def make_not_reproducible(
    wanted: str, tried: list[tuple[Runs, Bounds]]
) -> NotReproducible:
    """Create the error, with the number of runs, and their time if that ended them."""
    seen = [s for runs, _ in tried for s in (*runs.seen, *runs.later)]
    texts = list(dict.fromkeys(s.in_words for s in seen))
    made = sum(runs.made_count for runs, _ in tried)
    why = [bounds.explain_end(runs) for runs, bounds in tried]
    compiled = sum(bounds.compilations for _, bounds in tried)
    advice = MessageText.lines(dict.fromkeys([_advice(seen, wanted, compiled), *why]))
    spent_s = sum(bounds.spent_s for _, bounds in tried)
    seconds = spent_s if any(why) and spent_s else None
    return NotReproducible(wanted, made, texts, advice, seconds, _only_kind(seen))


def _only_kind(seen: list[Observation]) -> str:
    kinds = {str(s.signature.kind) if s.signature else "" for s in seen}
    return kinds.pop() if len(kinds) == 1 else ""


def _advice(seen: list[Observation], wanted: str, compiled: int) -> MessageText:
    kinds = {s.signature.kind.value for s in seen if s.signature}
    if kinds:
        return MessageText(
            "to reduce the failure seen here: ", Flag("--until", sorted(kinds)[0])
        )
    if all(s.passed for s in seen):
        silent = [_SILENT] if wanted != Kind.IMA else []
        otherwise = advise_other_hash_seed(compiled)
        return MessageText.lines([*_WHAT_DIFFERS, otherwise, *silent, *_WHERE_ELSE])
    return MessageText("see above")


_WHAT_DIFFERS = (
    "possible differences from the failing run:",
    MessageText(
        "inputs other than the exported inputs: ",
        Flag("--inputs", stands="FILE"),
        "; other sizes: ",
        Flag("--dynamic-sweep"),
    ),
    MessageText(
        "settings: ",
        Flag("--inductor-config", stands="KEY=VALUE"),
        ", ",
        Flag("--env", stands="KEY=VALUE"),
    ),
    MessageText("custom lowerings or passes: ", Flag("--preload", stands="FILE")),
)

_SILENT = MessageText("a memory error that went unnoticed: ", Flag("--until", "ima"))

_WHERE_ELSE = (
    MessageText(
        "CUDA instead of the CPU: ",
        Flag("--device", "cuda"),
        " with ",
        Flag("--backend", "interpreter"),
        " checks each access of a kernel",
    ),
    MessageText(
        "a busy machine: keep this machine busy, and run with ",
        Flag("--baseline-runs", 1000),
    ),
)
