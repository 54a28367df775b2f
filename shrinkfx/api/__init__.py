"""The Python API of shrinkfx.

``minify`` reduces a failing program, with the options as keywords. The other functions
take an ``Options`` record or the folder of a run: ``reduce`` and ``sweep`` start a run,
and ``resume`` continues one; ``capture`` finds the failing program of a script;
``explain``, ``report``, ``retrieve``, ``runs``, ``past`` and ``verify`` work with the
results of earlier runs.
"""

from shrinkfx.api.earlier_runs import (
    explain,
    is_run,
    past,
    report,
    retrieve,
    runs,
    verify,
)
from shrinkfx.api.reducing import (
    capture,
    is_capture,
    minify,
    recaptured,
    reduce,
    reduce_found,
    resume,
    sweep,
    taken_in,
)
from shrinkfx.check.environments.choice import refuse
from shrinkfx.options.options import Options, Sweeping
from shrinkfx.run.explaining import Explained
from shrinkfx.run.folder import Past, Reduction, Run, State
from shrinkfx.run.retrieve import Retrieved
from shrinkfx.run.sweep import Swept
from shrinkfx.run.verify import Confirmed

__all__ = [
    "Confirmed",
    "Explained",
    "Options",
    "Past",
    "Reduction",
    "Retrieved",
    "Run",
    "State",
    "Sweeping",
    "Swept",
    "capture",
    "explain",
    "is_capture",
    "is_run",
    "minify",
    "past",
    "recaptured",
    "reduce",
    "reduce_found",
    "refuse",
    "report",
    "resume",
    "retrieve",
    "runs",
    "sweep",
    "taken_in",
    "verify",
]
