"""All that shrinkfx uses of PyTorch and Triton and that they do not promise to keep.

A module for each feature: its ``FEATURE`` lists the names, where they come from, in
which versions they were read, and what happens without them. The rest of the worker
takes them from here, as ``build_api.CppBuilder``; nothing is imported before it is
used. Porting to a new PyTorch begins with ``tests/worker/test_private_api.py``.
"""

from shrinkfx.worker.private_api import (
    archive_api,
    build_api,
    codegen_api,
    cuda_api,
    dump_api,
    first_lowering_api,
    graph_api,
    inductor_api,
    operator_api,
    triton_api,
    weights_api,
)

NEEDED = (graph_api.FEATURE, inductor_api.FEATURE, archive_api.FEATURE)
"""Features without which shrinkfx cannot start."""

OPTIONAL = (
    build_api.FEATURE,
    first_lowering_api.FEATURE,
    weights_api.FEATURE,
    codegen_api.FEATURE,
    operator_api.FEATURE,
    dump_api.FEATURE,
)
"""Features that a run falls back from, or does without."""

FOR_CUDA_WITHOUT_GPU = (cuda_api.FEATURE, triton_api.FEATURE)
"""Features without which a CUDA program is only checked on a GPU."""

FEATURES = (*NEEDED, *OPTIONAL, *FOR_CUDA_WITHOUT_GPU)
