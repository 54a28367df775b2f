"""Choose a template of a GEMM, convolution or attention where none can be timed.

With ``max_autotune`` Inductor times the choices for such an operator. Without a GPU,
the first choice made from a Triton template is taken, because the interpreter cannot
check a library's kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock


@contextlib.contextmanager
def choose_templates_untimed() -> Iterator[list[str]]:
    """Let Inductor choose templates without timing them on a device.

    Yields:
        A list that receives, on exit, a line for each operator with templates that were
        not run.
    """
    from shrinkfx.worker.private_api.cuda_api import AlgorithmSelectorCache

    untried: dict[str, None] = {}

    def timed(self: Any, name: str, *args: Any, **kwargs: Any) -> dict[Any, float]:
        choices = kwargs.get("choices") or next(a for a in args if _are_choices(a))
        ordered = sorted(choices, key=_is_no_template)
        templates = sum(not _is_no_template(choice) for choice in ordered)
        if templates > 1:
            untried[f"{name}: only the first of {templates} templates ran"] = None
        return {choice: float(place) for place, choice in enumerate(ordered)}

    lines: list[str] = []
    with (
        mock.patch.object(AlgorithmSelectorCache, "do_autotuning", timed),
        mock.patch.object(
            AlgorithmSelectorCache, "make_precompile_fn", return_value=dict
        ),
    ):
        yield lines
        lines += untried


def _are_choices(value: Any) -> bool:
    from shrinkfx.worker.private_api.cuda_api import ChoiceCaller

    is_list = isinstance(value, Sequence) and len(value) > 0
    return is_list and all(isinstance(choice, ChoiceCaller) for choice in value)


def _is_no_template(choice: Any) -> bool:
    from shrinkfx.worker.private_api.cuda_api import TritonTemplateCaller

    return not isinstance(choice, TritonTemplateCaller)
