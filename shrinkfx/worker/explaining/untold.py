"""What cannot be told of a program whose nodes have other names than are known.

A candidate that is exported anew, or read from its printed source, computes the same
and calls its values otherwise: what is told of a name would be told of another value.
So it gets the names that are known back, and where nobody knows these, word of why.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shrinkfx.protocol.anatomy import UNTOLD
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.protocol.requests import CheckOptions
from shrinkfx.worker.graph.rebuild import Rebuilt

_ANEW = "it must be exported again, which renames its values"
_SOURCE = "its printed source was run, in which values have other names"


def by_known_names(run: Rebuilt, options: CheckOptions) -> tuple[Rebuilt, CheckOptions]:
    """Have what is asked for by names told by those that are known, or not at all."""
    asked = options.evidence or options.anatomy or options.values
    if run.names is None or not asked:
        return run, options
    if run.names.why_not:
        return run, untold(options, run.names.why_not)
    return run.with_names_before(), options


def untold(options: CheckOptions, why_not: str) -> CheckOptions:
    """Ask for nothing by names, and leave word of why where it was asked for."""
    how = _SOURCE if options.form is CandidateForm.SOURCE else _ANEW
    why = f"{how}: {why_not}"
    if options.anatomy is not None:
        (Path(options.anatomy) / UNTOLD).write_text(why)
    if options.values is not None:
        Path(options.values).write_text(KernelValues(unknown=why).to_line())
    return replace(options, evidence=None, anatomy=None, values=None)
