"""``ISSUE.md``: PyTorch's bug report form, or a form for the author of an operator.

The sentences are in ``issue.md.jinja``. This module has the record of the facts that
they state, enough to write the issue again later. It computes the values in them, the
title, and which sentences on the cause say more than the rest of the issue.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from shrinkfx.failure.readers.device import find_printed_assertion
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.findings.code import CodeLine
from shrinkfx.findings.decisions import PARTS, format_decisions
from shrinkfx.findings.operators import (
    Operator,
    OperatorMismatch,
    format_fails_alone,
)
from shrinkfx.findings.record import EAGER_FAILS, Explanation, Outcome
from shrinkfx.findings.values import WrongValue, describe_first_error
from shrinkfx.preloads.preload_bundle import CustomCompilerCode
from shrinkfx.program.display_text import cut_middle, cut_text, first_line
from shrinkfx.program.listing.printed_program import group_untested_kinds
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.kernel_values import Wrong
from shrinkfx.protocol.operators import VALUE_DEPENDENCIES, differing_properties
from shrinkfx.protocol.record import Message
from shrinkfx.report.anonymous import (
    is_triton,
    mark_code,
    quoted_code,
    strip_default_overload,
    strip_origins,
    strip_paths,
)
from shrinkfx.report.header import COMPILERS, name_non_finite
from shrinkfx.report.in_compiler import (
    ENDS,
    capitalize_sentence,
    describe_custom_code,
    find_own_function,
    format_disappears_without,
    format_stops_in_function,
    format_title_part,
    name_sources,
)
from shrinkfx.report.issue.script import (
    TRACEBACK,
    Traits,
    drop_comments,
    error_log,
    lines_left_out,
    quote_script,
    traits_of,
    without_warnings,
    write_opcheck,
)
from shrinkfx.report.record import OtherCauses, RunRecord, find_eager_error
from shrinkfx.report.template import render
from shrinkfx.versions import __version__

_QUOTED = 20_000
"""Maximum characters of a quoted script; GitHub accepts 65,536 in all."""

_NAMED = 3
"""Maximum number of operators that a sentence names."""

_TITLE = 120
"""Maximum characters of a title."""

_THREADS = re.compile(r"\{'cpp.threads': (\d+)\}")

_LOG = 32_000
"""Maximum characters of a run's output, of which the error log has 60 lines."""


@dataclass(frozen=True)
class IssueFacts(Message):
    """The facts of a run that an issue states, besides the cause.

    Attributes:
        kind, stage: the failure of the reduced program.
        message: the message of the failure; ``detail`` is its normalized form.
        targets: operators that the reduced program calls.
        before: number of operators of the input program.
        after: number of operators of the reduced program.
        runs: number of runs of the repro, of which ``failed`` failed.
        rate: the fraction of the reduced program's runs that fail; a run makes
            ``calls`` calls.
        compared: eager runs the program as well.
        writes: the program changes its inputs or weights in place.
        passes: the program passes at other sizes, which the repro runs first.
        interpreted: the GPU that the kernels were compiled for, if they ran only on
            Triton's interpreter; or ''.
        guarded: the failure may not show without a sanitizer.
        dynamic: some sizes of the reduced program are dynamic.
        on_gpu: that sanitizer is compute-sanitizer, not AddressSanitizer.
        inductor: options of the compilation, as Python.
        environment: names of the variables that the repro sets.
        caveats: other possible causes.
        minimal: no single operator can be removed.
        not_tested: kinds of reduction that were not tested: sizes, values.
        stopped: what ended the search early, or ''.
        log: the output of a run of the repro that failed.
        above: the number of lines above the repro's code in that run, which a cause in
            the header changes later; None if not known.
        needed_files: files that the repro needs next to it.
        versions: ``torch 2.13.0`` and so on, of the run.
        in_compiler: the user's code in the compiler.
        needs_own: the script does not fail without that code; False if not tested.
        inside: the user's function in which the compiler hangs or crashes, or ''.
        tool: the version of shrinkfx.
        tested: by version of PyTorch, True if the repro fails; empty if only one was
            tested.
        anonymous: the user's names are omitted.
        renamed: new names of inputs and weights, by old name.
        backend: what compiles the program.
        original_message: the message of the input program's failure, or ''.
        varies: the runs of the repro that failed gave different values.
    """

    OLD_NAMES: ClassVar[Mapping[str, str]] = {
        "said": "message",
        "careful": "caveats",
        "beside": "needed_files",
        "unasked": "not_tested",
    }

    kind: Kind
    stage: Stage
    message: str
    detail: str
    targets: tuple[str, ...]
    before: int
    after: int
    runs: int
    failed: int
    rate: float
    calls: int
    compared: bool
    writes: bool
    passes: bool
    interpreted: str
    guarded: bool
    inductor: str
    environment: tuple[str, ...]
    caveats: OtherCauses
    minimal: bool
    stopped: str
    log: str
    needed_files: tuple[str, ...]
    versions: tuple[str, ...]
    anonymous: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    dynamic: bool = False
    on_gpu: bool = False
    in_compiler: CustomCompilerCode = field(default_factory=CustomCompilerCode)
    needs_own: bool = False
    inside: str = ""
    tool: str = __version__
    above: int | None = None
    not_tested: tuple[str, ...] = ()
    tested: Mapping[str, bool] = field(default_factory=dict)
    backend: Backend = Backend.AOTI
    original_message: str = ""
    varies: bool = False

    @property
    def is_verified(self) -> bool:
        """Whether the repro failed in every run."""
        return 0 < self.failed == self.runs

    @property
    def may_be_custom_code(self) -> bool:
        """Whether the bug may be in the user's own code in the compiler."""
        return self.needs_own or bool(self.inside)

    @property
    def needs_options(self) -> bool:
        """Whether the failure needs the options; a comparison may need others."""
        is_of_threads = _THREADS.fullmatch(self.inductor) is not None
        return self.stage is not Stage.COMPARE or is_of_threads

    @property
    def failure(self) -> Signature:
        """The failure of the reduced program."""
        return Signature(self.kind, self.stage, self.detail, self.message)


def facts_of(record: RunRecord, *, anonymous: bool = False) -> IssueFacts:
    """Derive the facts of an issue from the record of a run."""
    failure, conditions, verified = record.failure, record.conditions, record.verified
    search = record.search
    written, log = verified.written, without_warnings(verified.log)
    # The output of a loop may be long before the traceback that ends it.
    above, opens, rest = f"\n{log}".partition(f"\n{TRACEBACK}\n")
    kept = f"{find_printed_assertion(above)}\n{TRACEBACK}\n{rest}".lstrip()
    memory = record.memory
    seen = f"Observed under {memory.sanitizer}: {memory.report}\n"
    return IssueFacts(
        kind=failure.seen.kind,
        stage=failure.seen.stage,
        message=failure.seen.text or failure.seen.detail,
        detail=failure.seen.detail,
        targets=record.programs.targets,
        before=record.operators[0],
        after=record.operators[1],
        runs=verified.runs,
        failed=verified.failed,
        rate=failure.rate_after,
        calls=failure.calls,
        compared=conditions.reference,
        writes=conditions.keeps_state,
        passes=conditions.passes,
        interpreted=conditions.interpreted_for,
        guarded=record.is_unsure,
        inductor=repr(dict(written.inductor)) if written.inductor else "",
        environment=tuple(written.environment),
        caveats=record.remaining_causes,
        minimal=search.minimal,
        stopped=search.stopped,
        log=(seen if memory.report else "") + cut_middle(kept if opens else log, _LOG),
        needed_files=tuple(file.name for file in written.files[1:]),
        versions=tuple(f"{name} {known}" for name, known in record.versions.items()),
        anonymous=anonymous,
        renamed=record.programs.renamed,
        dynamic=bool(record.programs.after.dynamic_dims),
        on_gpu=memory.on_gpu,
        in_compiler=written.carried.in_compiler,
        needs_own=written.needs_own,
        above=verified.above,
        not_tested=tuple(
            k for kinds in group_untested_kinds(search.kinds).values() for k in kinds
        ),
        inside=find_own_function(failure.seen, verified.log),
        backend=conditions.backend,
        original_message=failure.target.text,
        varies=verified.varies,
    )


def issue_text(
    facts: IssueFacts,
    explanation: Explanation,
    script: str,
    environment: str,
    title: str = "",
) -> str:
    """Return the text of the issue.

    Args:
        script: the text of the repro.
        environment: the text of the section on versions.
        title: the title; '' derives one.
    """
    traits = traits_of(script, dynamic=facts.dynamic)
    mismatch = find_operator_mismatch(explanation)
    values = {
        **vars(facts),
        **_values_of_failure(facts, explanation),
        **_values_of_script(facts, script),
        **_values_of_cause(facts, explanation, mismatch),
        **_values_of_custom_code(facts),
        "title": title or title_of(facts, explanation, traits),
        "traits": traits,
        "environment": environment,
        "mismatch": mismatch,
    }
    if mismatch is not None:
        values |= _values_of_mismatch(facts, mismatch, script)
    return render("issue/issue.md.jinja", values).strip() + "\n"


def find_operator_mismatch(explanation: Explanation) -> OperatorMismatch | None:
    """Return the mismatch that the author of its operator must correct, or None."""
    found = explanation.culprit_mismatch
    is_authors = found is not None and (found.is_of_values or found.operator.is_custom)
    return found if is_authors else None


# The values of each part of the template.

_BENCHMARK = "(generated argument)"
"""In a finding about arguments that AOTInductor makes up to benchmark a kernel."""

_USER_KERNEL = re.compile(r"\(user kernel (\w+)\)")
"""A Triton kernel of the model, in a finding of the interpreter."""


def _values_of_failure(
    facts: IssueFacts, explanation: Explanation
) -> dict[str, object]:
    first = strip_paths(first_line(facts.message))
    error = facts.message.partition(":")[0]
    # The first sentence already names AOTI_RUNTIME_CHECK_INPUTS.
    stated = ["AOTI_RUNTIME_CHECK_INPUTS"] if facts.kind is Kind.CHECK_INPUTS else []
    versions = (known.partition(" ") for known in facts.versions)
    refusal = explanation.chain.refusal if explanation.chain else None
    symbols = refusal.symbols if refusal else ()
    wrong = explanation.values.wrong if explanation.values else None
    kernel = _USER_KERNEL.search(first)
    # On a GPU, the repro of a memory fault was not run without these.
    untested = facts.kind is Kind.IMA and "CUDA_LAUNCH_BLOCKING" in facts.environment
    operators = list_named_operators(facts, explanation)
    threads = _THREADS.fullmatch(facts.inductor)
    return {
        "compiler": COMPILERS[facts.backend],
        "non_finite": name_non_finite(facts.message),
        "is_verified": facts.is_verified,
        "needs_options": facts.needs_options,
        "threads": threads[1] if threads else "",
        "may_be_custom_code": facts.may_be_custom_code,
        "operators": operators,
        "error_class": error if re.fullmatch(r"\w*(Error|Exception)", error) else "",
        "first_line": first,
        "percent": f"{facts.rate:.0%}",
        "fails_on": [version for version in facts.tested if facts.tested[version]],
        "passes_on": [version for version in facts.tested if not facts.tested[version]],
        "variables": [name for name in facts.environment if name not in stated],
        "needs_variables": not (facts.interpreted or untested),
        "torch": next((v for name, _, v in versions if name == "torch"), ""),
        "invalid_inputs": strip_origins(explanation.inputs, explanation),
        "user_kernel": kernel[1] if kernel else "",
        "benchmarked": _BENCHMARK in facts.message,
        "custom_operators": [o for o in operators if Operator("", o).is_custom],
        "out_of_range": [s.declaration for s in symbols if s.is_out_of_range],
        "unfit": wrong.unfit if wrong else "",
    }


def _values_of_script(facts: IssueFacts, script: str) -> dict[str, object]:
    text = quote_script(script)
    is_quoted = len(text) <= _QUOTED
    # The log counts lines as the reader's copy does: the quoted code, or the current
    # repro.py, whose header may have another length than when it ran.
    now = lines_left_out(script)
    ran = now if facts.above is None else facts.above
    log = error_log(facts.log, "repro.py", ran if is_quoted else ran - now)
    message = strip_paths(facts.message)
    if facts.kind is Kind.CRASH and message not in log:
        log = f"{log}\n\nThe process was killed by {message}."
    return {
        "script": text.rstrip(),
        "is_quoted": is_quoted,
        "log": drop_comments(log.strip(), script) or message,
    }


def _values_of_custom_code(facts: IssueFacts) -> dict[str, object]:
    found, anonymous = facts.in_compiler, facts.anonymous
    sources = name_sources(found, anonymous=anonymous, mark="`")
    owner = "the custom code"
    if not anonymous and (facts.inside or found.sources):
        owner = f"`{facts.inside}`" if facts.inside else f"{owner} from {sources}"
    clause, inside = sources, ""
    if found.places:
        clause = describe_custom_code(found, anonymous=anonymous, mark="`")
    if facts.inside:
        inside = format_stops_in_function(
            facts.kind, facts.inside, anonymous=anonymous, mark="`"
        )
    return {
        "custom_code_owner": owner,
        "custom_code_sources": sources,
        "custom_code": capitalize_sentence(clause),
        "custom_code_clause": clause,
        "stops_in_function": inside,
    }


def _values_of_mismatch(
    facts: IssueFacts, mismatch: OperatorMismatch, script: str
) -> dict[str, object]:
    declared, made = mismatch.declared, mismatch.made
    part = mismatch.wrong_part
    is_fake = part == "fake kernel"
    has_specs = is_fake and declared is not None and made is not None
    differs = differing_properties(declared, made) if declared and made else ()
    # The difference may repeat both specs; the arguments of the call come after them.
    difference, is_known, arguments = mismatch.difference.rpartition(
        ", when called with "
    )
    is_placed = mismatch.place and not facts.anonymous
    operator = mismatch.operator.operator
    written = re.match(r"writes to its argument (\w+)", mismatch.difference)
    return {
        "written": written[1] if written else "",
        "operator": strip_default_overload(operator),
        "wrong_part": part,
        "place": f" (`{mismatch.place}`)" if is_placed else "",
        "value_dependency": VALUE_DEPENDENCIES.get(mismatch.what, ""),
        "has_specs": has_specs,
        "difference": difference if is_known else mismatch.difference,
        "result": f" (result {mismatch.result})" if mismatch.result else "",
        "arguments": arguments if is_known else "",
        "opcheck_test": "test_faketensor" if is_fake else "test_schema",
        "opcheck": None if mismatch.is_of_values else write_opcheck(operator, script),
        "differs_in_strides": differs == ("strides",),
        "author_versions": "\n".join(facts.versions[:3]),  # PyTorch, Python, compiler
    }


def _values_of_cause(
    facts: IssueFacts, explanation: Explanation, mismatch: OperatorMismatch | None
) -> dict[str, object]:
    decisions, caveats = explanation.decisions, facts.caveats
    if mismatch is not None:  # the issue states this mismatch already
        caveats = caveats.without_operator(mismatch.operator.operator)
    switching = decisions.switching if decisions else None
    values = explanation.values
    triton = is_triton(explanation)
    return {
        "eager_error": "".join(map(find_eager_error, caveats.warnings)),
        "caveats": [_sentence(t) for t in caveats.all() if not find_eager_error(t)],
        "cause_sentences": cause_sentences(facts, explanation, mismatch),
        "decisions": decisions,
        "options": switching if switching and not switching.unknown else None,
        "part_names": PARTS,
        "bare": strip_default_overload,
        "skipped_parts": [
            part
            for part in (decisions.left_out if decisions else ())
            if not part.only_shows
        ],
        "triton": triton,
        "failing_code": quote_failing_code(explanation, "#" if triton else "//"),
        "torch_compile": explanation.torch_compile,
        "open_questions": [
            rewrite_for_issue(text, facts, explanation).rstrip(".")
            for text in explanation.unknown
        ],
        "is_settled": explanation.is_settled,
        "is_explained": _is_explained(explanation),
        "is_rewritten": bool(values and values.rewritten),
        "quotes_graph": bool(values and values.rewritten and values.code),
    }


def _is_explained(explanation: Explanation) -> bool:
    """Return whether the cause is more than the place at which the program stops."""
    if not any(part.cause for part in explanation.parts):
        return True
    chain, values = explanation.chain, explanation.values
    decisions = explanation.decisions
    found = decisions is not None and (decisions.left_out or decisions.switching)
    read = chain is not None and (chain.index or chain.refusal or chain.access)
    rewritten = values is not None and values.rewritten and not values.is_undecided
    return bool(rewritten or read or found or explanation.culprit_mismatch)


def _sentence(text: str) -> str:
    """Convert a warning to a sentence, without advice for users of shrinkfx."""
    parts = [part for part in text.split(". ") if " --" not in f" {part}"]
    return f"{strip_paths(mark_code('. '.join(parts))).rstrip(' .')}."


# The cause.


def cause_sentences(
    facts: IssueFacts, explanation: Explanation, mismatch: OperatorMismatch | None
) -> list[str]:
    """Return the sentences on the cause that the issue does not state elsewhere."""
    known, inside = explanation.decisions, facts.inside
    stated = format_decisions(known, facts.failure) if known is not None else []
    stated += [EAGER_FAILS, *map(format_fails_alone, explanation.operators)]
    for anonymous in (True, False):
        stated.append(format_disappears_without(facts.in_compiler, anonymous=anonymous))
        if inside:
            text = format_stops_in_function(facts.kind, inside, anonymous=anonymous)
            stated.append(text)
    if mismatch is not None:
        stated.append(mismatch.sentence)
    unstated = (t.replace("; why is not known", "") for t in explanation.cause)
    sentences = [text for text in unstated if text not in stated]
    shortened = (_drop_repeated_parts(text, facts, explanation) for text in sentences)
    return [rewrite_for_issue(text, facts, explanation) for text in shortened if text]


def rewrite_for_issue(text: str, facts: IssueFacts, explanation: Explanation) -> str:
    """Rewrite a sentence on the cause for a reader without the model and its files."""
    text = strip_origins(text, explanation, anonymous=facts.anonymous)
    return strip_paths(mark_code(text))


def _drop_repeated_parts(text: str, facts: IssueFacts, explanation: Explanation) -> str:
    """Remove from a sentence on the cause what the issue states elsewhere."""
    lines = [line for code in quoted_code(explanation) for line in code]
    if any(line.at_fault and f"`{line.text.strip()}`" in text for line in lines):
        return ""  # the line is quoted below with its context
    first = _CLASSES.sub("", facts.message.strip().partition("\n")[0].rstrip("."))
    doing, fails, _ = text.partition(" fails: ")
    if not (fails and first and first in text):
        return text
    stop = explanation.compile_error
    return f"{doing} fails." if stop and not stop.names_no_place else ""


def quote_failing_code(explanation: Explanation, comment: str) -> str:
    """Quote the generated code around the failing line, or return ''."""
    access = explanation.chain.access if explanation.chain else None
    # In optimized code, the line of an address is only roughly known.
    place = "here or nearby" if access and access.address else "here"
    values = explanation.values or WrongValue()
    # A kernel that reads an operator's undeclared result is right.
    is_right = find_operator_mismatch(explanation) is not None
    for code in quoted_code(explanation):
        is_of_values = bool(code) and code is values.code
        if is_of_values and is_right:
            continue
        if is_of_values and len(values.culprits) <= _NAMED:
            called = (operator.operator for operator in values.culprits)
            place = ", ".join(dict.fromkeys(map(strip_default_overload, called)))
        if is_of_values or any(line.at_fault for line in code):
            return "\n".join(_marked(code, f"  {comment} <-- {place}"))
    return ""


def _marked(lines: Sequence[CodeLine], comment: str) -> Iterator[str]:
    indents = [len(c.text) - len(c.text.lstrip()) for c in lines if c.text.strip()]
    margin = min(indents, default=0)
    for line in lines:
        mark = comment if line.at_fault else ""
        yield cut_text(strip_paths(line.text[margin:].rstrip()), 400) + mark


# The title.


def title_of(facts: IssueFacts, explanation: Explanation, traits: Traits) -> str:
    """Return the first title of the template that is short enough."""
    known = explanation.values or WrongValue()
    is_jit = facts.backend is Backend.INDUCTOR
    is_jit = is_jit or explanation.torch_compile is Outcome.SAME
    compiler = "Inductor" if is_jit else "AOTInductor"
    decided = not known.is_undecided
    found = known.wrong if len(explanation.culprits) == 1 or not decided else None
    symptom, preposition, detail = _symptom(facts, found, decided=decided)
    if preposition == "in" and not explanation.culprits:
        preposition = "with"
    wrong, is_nan = explanation.values, facts.kind is Kind.NAN
    is_before = wrong and wrong.culprits and wrong.without and preposition != "of"
    if is_before or (wrong and wrong.tiny and is_nan):
        preposition = "after a wrong result of"
    mismatch = find_operator_mismatch(explanation)
    names = list_named_operators(facts, explanation)
    shown = min(_NAMED, len(names))
    while shown > 1 and len(" + ".join(names[:shown])) > _TITLE // 2:
        shown -= 1
    more = [f"{len(names) - shown} more"] * (len(names) > shown)
    operators = " + ".join([*names[:shown], *more])
    own = format_title_part(facts.in_compiler, operators, anonymous=facts.anonymous)
    extras = {"dynamic shapes": traits.dynamic, "non-contiguous inputs": traits.strided}
    extras |= {f"{traits.writes} written in place": bool(traits.writes)}
    options = _OPTION.findall(facts.inductor) if facts.needs_options else []
    extras |= {f"{name}={value}": True for name, value in options}
    # Higher-order operators, such as cond, have no overload.
    extras |= {n: n not in names for n in facts.targets if n.isidentifier()}
    invalid = explanation.inputs.partition(". ")[0].rstrip(".")
    values = {
        **vars(facts),
        **_values_of_failure(facts, explanation),
        "label": "functionalization" if known.functionalized else compiler,
        "symptom": symptom,
        "preposition": preposition,
        "detail": detail,
        "details": [*dict.fromkeys([detail, _CLASSES.sub("", detail)])]
        + [""] * bool(facts.needs_own and detail),
        "mismatch": mismatch,
        "operator": strip_default_overload(mismatch.operator.operator)
        if mismatch
        else "",
        "operators": operators,
        "ends": ENDS.get(facts.kind, ""),
        "invalid_inputs": f"{invalid[:1].lower()}{invalid[1:]}",
        "rejected_input": _rejected_input(explanation),
        "traits": traits,
        "extras": [text for text, applies in extras.items() if applies],
        "custom": own if facts.needs_own else "",
    }
    titles = render("issue/titles.txt.jinja", values).strip().splitlines()
    cut = titles[-1][: _TITLE - 3].rpartition(" ")[0]
    shortened = re.sub(r" \([^()]*$", "", cut) + " ..."
    title = next((title for title in titles if len(title) <= _TITLE), shortened)
    return title if title.endswith("...") else title.removesuffix(".")


def _rejected_input(explanation: Explanation) -> str:
    refused = explanation.chain.refusal if explanation.chain is not None else None
    if refused is None or refused.input is None:
        return "an input"
    dim = "" if refused.dim is None else f", dim {refused.dim}"
    return f"input {refused.input.name}{dim}"


def list_named_operators(facts: IssueFacts, explanation: Explanation) -> list[str]:
    """List the culprit operators if known, otherwise all operators that remain."""
    python = ("<built-in", "<function")
    names = [each.operator for each in explanation.culprits]
    names = names or [name for name in facts.targets if not name.startswith(python)]
    return list(dict.fromkeys(map(strip_default_overload, names or facts.targets)))


_OPTION = re.compile(r"'([\w.]+)': ([\w.-]+)")

_CLASS = r"\w*(?:Error|Exception): "
_CLASSES = re.compile(rf"^(?:[\w.]*{_CLASS})*(?!KeyError)[\w.]*{_CLASS}")

_SYMPTOMS = {
    Kind.MISMATCH: ("wrong result", "of"),
    Kind.HANG: ("hang", ""),
    Kind.OOM: ("excessive memory use", ""),
    Kind.CRASH: ("crash", ""),
    Kind.CHECK_INPUTS: ("AOTI_RUNTIME_CHECK_INPUTS=1 rejects an input", "of"),
    Kind.COMPILE_ERROR: ("compile error", "in"),
    Kind.LOAD_ERROR: ("cannot load the package", "compiled from"),
    Kind.ASSERT: ("assertion failure", "in"),
}
"""The text of a title before the operators, and the preposition, if not the stage."""

_WITH_MESSAGE = (Kind.CRASH, Kind.COMPILE_ERROR, Kind.LOAD_ERROR)

_METADATA = re.compile(
    r".*?\b(dtype|shape|device|layout|strides?) (.*)(?:, eager gives| instead of) (.*)"
)

_SHORT_VALUES = re.compile(r"\]: (\S{1,8}), eager gives (\S{1,8})$")

_TORCHS = re.compile(r"torch\.(?:Size\()?([^()]+)\)?")


def _symptom(
    facts: IssueFacts, wrong: Wrong | None, *, decided: bool
) -> tuple[str, str, str]:
    """Return symptom, preposition, and the detail that follows the operators.

    Args:
        wrong: how the result of these operators differs, if it is known.
        decided: eager's result may be called the right one.
    """
    kind, first = facts.kind, first_line(facts.message)
    value = describe_first_error(wrong) if wrong else first * (len(facts.targets) == 1)
    symptoms = {**_SYMPTOMS, Kind.NAN: (name_non_finite(value, first), "from")}
    compiles = facts.stage is Stage.COMPILE
    when = "when compiling" if compiles else "when running"
    metadata = first if kind is Kind.MISMATCH else wrong.metadata if wrong else ""
    if differs := _METADATA.match(metadata):
        got, wanted = (_TORCHS.sub(r"\1", text) for text in differs.groups()[1:])
        return f"wrong {differs[1]}", "of", f"{got} instead of {wanted}"
    if kind is Kind.MISMATCH and wrong and wrong.of_signs:
        symptoms[kind] = "another sign of zero", "from"
    elif kind is Kind.MISMATCH and not decided:
        found = _SHORT_VALUES.search(value)
        detail = f"{found[1]}, in eager {found[2]}" if found else ""
        return "different results", "of", detail
    if kind in (Kind.MISMATCH, Kind.NAN) and (found := _SHORT_VALUES.search(value)):
        return *symptoms[kind], f"{found[1]} instead of {found[2]}"
    if kind is Kind.IMA:
        is_misaligned = "misaligned address" in first
        what = "misaligned address" if is_misaligned else "illegal memory access"
        return what, when if compiles else "in", ""
    if kind is Kind.CRASH and re.fullmatch(r"SIG\w+", first):
        return first, when, ""
    if kind is Kind.ASSERT and "index out of bounds" in first:
        return "index out of bounds", "in", ""
    name, _, message = first.partition(": ")
    without_class = message if message and re.fullmatch(r"[\w.]+", name) else first
    if kind in symptoms:
        symptom, preposition = symptoms[kind]
        is_stated = kind in (Kind.CHECK_INPUTS, Kind.ASSERT)
        detail = without_class if is_stated else first if kind in _WITH_MESSAGE else ""
        return symptom, preposition or when, detail
    if re.fullmatch(r"[\w.]*(?:Error|Exception)", name):
        return name, "in", message
    return "error", "in", without_class
