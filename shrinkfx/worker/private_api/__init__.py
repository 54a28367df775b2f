"""The private names of PyTorch and Triton that shrinkfx uses.

There is a module for each feature. Its ``FEATURE`` lists the names, their places, and
what happens without them. The rest of the worker takes the names from here, as in
``fast_build_api.CppBuilder``; a name is imported when it is used. Porting to a new
PyTorch begins with ``tests/worker/test_private_api.py``.
"""

from shrinkfx.worker.private_api import (
    archive_api,
    codegen_api,
    cuda_api,
    dump_api,
    fast_build_api,
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
    fast_build_api.FEATURE,
    first_lowering_api.FEATURE,
    weights_api.FEATURE,
    codegen_api.FEATURE,
    operator_api.FEATURE,
    dump_api.FEATURE,
)
"""Features without which a run continues, some of them with a fallback."""

FOR_CUDA_WITHOUT_GPU = (cuda_api.FEATURE, triton_api.FEATURE)
"""Features without which CUDA programs can only be checked on a GPU."""

FEATURES = (*NEEDED, *OPTIONAL, *FOR_CUDA_WITHOUT_GPU)
