"""The statements of a repro after the model: export, compile, run, compare."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from shrinkfx.failure.readers.script import CANNOT_TELL, RAN_TO_END_PREFIX
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Stage
from shrinkfx.report.record import RunRecord

PASSES = 'print("passes at", *(tuple(value.shape) for value in inputs))'
"""Reports that the first run passed; without this line it is another failure."""

SAVED = "repro.pt2"
"""The file that a repro writes if only the user's own command can judge it."""


def format_run(record: RunRecord, export: str, called_with: str) -> str:
    """Return the statements after the model.

    Args:
        export: the statement that assigns ``program``.
        called_with: the name of the tuple of inputs; the tuple ``passing`` exists in
            addition if the repro has a run that must pass.
    """
    if record.signature.kind is Kind.CHECK:
        save = f'torch.export.save(program, "{SAVED}")'
        return "\n".join([_without_grad([export]), save])
    conditions, calls = record.conditions, record.failure.calls
    options = ""
    if conditions.inductor:
        options = f", inductor_configs={dict(conditions.inductor)!r}"
    where = f", device_index={conditions.gpu}" if conditions.gpu > 0 else ""
    if conditions.passes:
        called_with = "inputs"
    copied = f"copy.deepcopy({called_with})" if conditions.keeps_state else called_with
    inputs = f"*{copied}"
    seed = ["torch.manual_seed(0)"] if conditions.random else []
    expected = [*seed, f"expected = model({inputs})"] if conditions.reference else []
    build = [
        f"package = torch._inductor.aoti_compile_and_package(program{options})",
        f"compiled = torch._inductor.aoti_load_package(package{where})",
    ]
    run = [*seed, f"actual = compiled({inputs})"]
    if record.memory.loop > 1:
        often = f"for _ in range({record.memory.loop}):  # one call may not fail"
        run = [_block(often, run)]
    # Compile before the eager run in two cases: if the program changes its buffers; and
    # on the interpreter, where an eager run of a user's kernel prevents code
    # generation.
    lines = [export, *expected, *build]
    if conditions.keeps_state or conditions.interpreted_for or conditions.passes:
        lines, run = [export, *build], [*expected, *run]
    if calls > 1:
        run = [_block(f"for call in range({calls}):", run)]
    compare = _comparison(record) if conditions.reference else ""
    if conditions.passes or conditions.runs > 1:
        return _repeated(record, lines, run, compare)
    checked = filter(None, [_without_grad(lines + run), compare])
    return "\n".join([*checked, _format_success_message(record)])


def _without_grad(lines: Sequence[str]) -> str:
    return _block("with torch.no_grad():", lines)


def _block(head: str, lines: Sequence[str]) -> str:
    body = textwrap.indent("\n".join(lines), "    ")
    return f"{head}\n{body}"


def _repeated(
    record: RunRecord, lines: Sequence[str], run: Sequence[str], compare: str
) -> str:
    """Repeat the statements that fail only in some runs.

    If there are inputs that must pass, run these first, then those that fail.
    """
    once, each_run = _split(record, lines, run, compare)
    if record.conditions.runs == 1:
        each = _block("for inputs in (passing, failing):", [each_run, PASSES])
        return "\n".join([*once, each, _format_success_message(record)])
    passes = ["inputs = passing", each_run, PASSES, "inputs = failing"]
    passes = passes if record.conditions.passes else []
    return "\n".join([*once, *passes, _often(record, each_run)])


def _split(
    record: RunRecord, lines: Sequence[str], run: Sequence[str], compare: str
) -> tuple[list[str], str]:
    """Split the statements into those executed once and those executed in each run.

    A package that is loaded again has its initial buffers again, so the eager model is
    copied again as well.
    """
    conditions, stage = record.conditions, record.signature.stage
    compiles = stage is Stage.COMPILE
    loads = conditions.keeps_state or stage is Stage.LOAD
    once = 0 if compiles else len(lines) - loads
    needs_copy = conditions.keeps_state and conditions.reference
    fresh = ["model = copy.deepcopy(first_model)"] if needs_copy else []
    each_run = [_without_grad([*fresh, *lines[once:], *run]), compare]
    first = ["first_model = model"] * needs_copy
    first += [_without_grad(lines[:once])] * bool(once)
    return first, "\n".join(filter(None, each_run))


def _often(record: RunRecord, statements: str) -> str:
    """Repeat the statements, and print how many runs failed.

    If the compilation fails, the loop stops at the first failure because compiling is
    slow.
    """
    body, runs = textwrap.indent(statements, " " * 8), record.conditions.runs
    return (
        f"failures = []\nfor attempt in range({runs}):\n    try:\n{body}\n"
        "    except Exception as error:\n        failures.append(error)\n"
        + "        break\n"
        * (record.signature.stage is Stage.COMPILE)
        + 'print(f"{len(failures)} of {attempt + 1} runs failed")\n'
        "if failures:\n    raise failures[-1]\n" + _format_success_message(record)
    )


def _format_success_message(record: RunRecord) -> str:
    """Print that the failure no longer shows if that is certain, or else how to check.

    A heap corruption may be detected only when the memory is freed, and a missing
    result only when it is read. So the outputs are read and freed first.
    """
    failure = record.signature
    at_run_time = failure.detail == MEMORY_FAULT and failure.stage is Stage.RUN
    shown = (
        "torch.testing.assert_close(actual, actual, equal_nan=True)"
        "  # touch the outputs\n"
        "del actual, compiled  # freeing detects heap corruption\n"
    )
    return shown * at_run_time + _end(record)


def _end(record: RunRecord) -> str:
    claim = 'print("no longer fails")'
    if record.by_chance and not record.need_not_show:
        why = f"the failure depends on {record.by_chance}"
        return f'print(\n    "no longer fails, or not in this run: "\n    "{why}"\n)'
    if not record.need_not_show:
        return claim
    checks = "run it under compute-sanitizer or `shrinkfx --verify`"
    with_asan = record.needs_asan
    if with_asan:
        checks = "run it under AddressSanitizer, as above"
        checks += ", or `shrinkfx --verify`" if record.guarded else ""
    elif record.signature.kind is not Kind.IMA:
        checks = "run it under `shrinkfx --verify`"
    inconclusive = (
        f'print(\n    "{RAN_TO_END_PREFIX}{record.need_not_show} may go unnoticed: "\n'
        f'    "{checks}"\n)\nraise SystemExit({CANNOT_TELL})'
    )
    if not with_asan:
        return inconclusive
    shown = 'if "libasan" not in os.environ.get("LD_PRELOAD", ""):\n'
    return f"{shown}{textwrap.indent(inconclusive, '    ')}\n{claim}"


def _comparison(record: RunRecord) -> str:
    """Compare as the search did: values that eager also gets wrong are no failure."""
    match record.signature.kind:
        case Kind.MISMATCH:
            strides = [_STRIDES] if record.conditions.strict else []
            return "\n".join([*strides, _closeness(record.conditions.limits)])
        case Kind.NAN:
            return (
                "pairs = zip(actual, expected, strict=True)\n"
                "born = [bool((~a.isfinite() & e.isfinite()).any()) for a, e in pairs]"
                '\nassert not any(born), "not finite where eager is finite"'
            )
    return ""


_STRIDES = """\
for a, e in zip(actual, expected, strict=True):
    if isinstance(e, torch.Tensor):
        same = [s == t or n == 1 for s, t, n in zip(a.stride(), e.stride(), e.shape)]
        assert all(same), f"strides {a.stride()}, eager gives {e.stride()}\""""


def _closeness(limits: Sequence[tuple[float, float]]) -> str:
    """Compare each output within its own tolerances if they are not the defaults."""
    call = "torch.testing.assert_close"
    if not limits:
        return f"{call}(actual, expected, equal_nan=True)"
    rows = ", ".join(f"({rtol:g}, {atol:g})" for rtol, atol in limits)
    return (
        f"limits = [{rows}]  # relative and absolute\n"
        "for a, e, (rtol, atol) in zip(actual, expected, limits, strict=True):\n"
        f"    {call}(a, e, rtol=rtol, atol=atol, equal_nan=True)"
    )
