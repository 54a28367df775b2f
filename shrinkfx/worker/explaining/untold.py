"""What cannot be told of a program whose nodes have other names than are known.

A candidate that is exported anew, or read from its printed source, computes the same
and calls its values otherwise: what is told of a name would be told of another value.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shrinkfx.protocol.anatomy import UNTOLD
from shrinkfx.protocol.choices import CandidateForm
from shrinkfx.protocol.kernel_values import KernelValues
from shrinkfx.protocol.requests import CheckOptions

_ANEW = "it has to be exported anew, and values of a new program go by other names"
_SOURCE = "its printed source was asked, and values there go by other names"


def untold(options: CheckOptions) -> CheckOptions:
    """Ask for nothing by names, and leave word of why where it was asked for."""
    why = _SOURCE if options.form is CandidateForm.SOURCE else _ANEW
    if options.anatomy is not None:
        (Path(options.anatomy) / UNTOLD).write_text(why)
    if options.values is not None:
        Path(options.values).write_text(KernelValues(unknown=why).to_line())
    return replace(options, evidence=None, anatomy=None, values=None)
