"""The state other than caches that a lowering leaves in the process."""

from shrinkfx.worker.private_api.feature import Feature

FEATURE = Feature(
    "pre-warmed lowering",
    names={
        "counters": "torch._dynamo.utils:counters",
        "metrics": "torch._inductor.metrics",
    },
    attributes=("metrics.reset",),
    without="each check imports Inductor again, which takes 1.3 CPU-seconds",
)

__getattr__ = FEATURE.resolve
