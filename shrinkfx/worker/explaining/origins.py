"""Map nodes of Inductor's graphs to nodes of the program, by their known names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import fx

from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.compiled_program_view import REASON_FILE
from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.private_api import codegen_api


def find_origins(node: fx.Node) -> list[str]:
    """Return the names of the program's nodes that a node of Inductor's comes from."""
    if codegen_api.FEATURE.missing:
        return [node.name]
    graph = codegen_api.debug._pre_grad_graph_id
    if id(node.graph) == graph:
        return [node.name]
    mapping = codegen_api.debug._inductor_post_to_pre_grad_nodes.get("postToPre", {})
    if node.name in mapping:
        return list(mapping[node.name])
    names: list[str] = []
    sources = list(node.meta.get("from_node", ()))
    while sources:
        source = sources.pop()
        if source.graph_id == graph:
            names.append(source.name)
        sources += source.from_node
    return names or [node.name]


# Restore known node names in a program whose nodes were renamed, or record the reason.
#
# A candidate that is exported again, or read from its printed source, computes the
# same values under other names. A report by name would then describe another value. So
# such a program gets the known names back; if that fails, reports by name are switched
# off with the reason.

_EXPORTED_AGAIN = "the program must be exported again, and its values get other names"
_SOURCE = "its printed source was run, in which values have other names"


def restore_known_names(
    run: RebuiltCandidate, options: CheckOptions
) -> tuple[RebuiltCandidate, CheckOptions]:
    """Restore the known node names if a report needs them, or switch the report off."""
    needs_names = options.evidence or options.compiled_view or options.values
    if run.names is None or not needs_names:
        return run, options
    if run.names.why_not:
        return run, disable_reports_by_name(options, run.names.why_not)
    return run.with_original_names(), options


def disable_reports_by_name(options: CheckOptions, why_not: str) -> CheckOptions:
    """Switch off all reports by name, and record the reason for those requested."""
    cause = _SOURCE if options.form is CandidateForm.SOURCE else _EXPORTED_AGAIN
    why = f"{cause}: {why_not}"
    if options.compiled_view is not None:
        (Path(options.compiled_view) / REASON_FILE).write_text(why)
    if options.values is not None:
        Path(options.values).write_text(KernelValues(unknown=why).to_line())
    return replace(options, evidence=None, compiled_view=None, values=None)
