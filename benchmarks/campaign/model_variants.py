"""Which variants of real models fail under AOTInductor?

``python benchmarks/campaign/model_variants.py DIR`` takes the models of
``tests/models/`` (of transformers; of timm and torchvision where they are installed) in
float32, bfloat16 and float16, with fixed and with dynamic sizes, and those of images
with ``channels_last`` as well. ``screen.py`` describes what is in ``DIR`` afterwards.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import torch
from screen import Maker, NotTried, Trial, parser, screen
from torch import Tensor
from torch.utils import _pytree as pytree

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "models"))

import architectures

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
WITH_A_DTYPE = ("int8", "bf16")


def make(
    model: str, *, dtype: torch.dtype, dynamic: bool, channels_last: bool
) -> Trial:
    torch.manual_seed(0)
    try:
        sample = architectures.MODELS[model]()
    except (ImportError, TypeError) as error:
        raise NotTried(f"not made: {error}") from None
    arguments = dict(sample.arguments)
    if not model.startswith(WITH_A_DTYPE):
        sample.module.to(dtype)
        arguments = pytree.tree_map_only(
            Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, arguments
        )
    if channels_last:
        last = torch.channels_last
        sample.module.to(memory_format=last)
        arguments = {name: x.to(memory_format=last) for name, x in arguments.items()}
    program = type(sample)(sample.module, arguments, sample.dynamic).export(
        dynamic=dynamic
    )
    with torch.no_grad():
        expected = program.module()(**deepcopy(arguments))
    return Trial(program, expected, kwargs=arguments, by_largest=True)


def makers() -> Iterator[tuple[str, Maker]]:
    for model in architectures.MODELS:
        images = model in ("vit", "swin", "convnext", "efficientnet", "detr") or (
            model.startswith("timm")
        )
        dtypes = DTYPES[:1] if model.startswith(WITH_A_DTYPE) else DTYPES
        shapes = ((False, False), (True, False), (True, True))[: 3 if images else 2]
        for dtype, (dynamic, last) in itertools.product(dtypes, shapes):
            name = f"{model}-{str(dtype).removeprefix('torch.')}"
            name += "-dynamic" * dynamic + "-channels_last" * last
            how = {"dtype": dtype, "dynamic": dynamic, "channels_last": last}
            yield name, functools.partial(make, model, **how)


def main() -> None:
    screen(parser(__doc__).parse_args(), makers())


if __name__ == "__main__":
    main()
