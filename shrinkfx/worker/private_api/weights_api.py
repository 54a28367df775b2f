"""Packages without weights, and the calls that load the weights into them."""

from shrinkfx.worker.private_api.feature import Feature

FEATURE = Feature(
    "shared weights",
    names={
        "AotCodeCompiler": "torch._inductor.codecache:AotCodeCompiler",
        "GraphLowering": "torch._inductor.graph:GraphLowering",
        "AOTIModelPackageLoader": "torch._C._aoti:AOTIModelPackageLoader",
    },
    attributes=(
        "AotCodeCompiler.compile",
        "AOTIModelPackageLoader.update_constant_buffer",
        "GraphLowering.get_original_value_of_constant",
    ),
    without="each check writes the weights of its candidate to the disk six times",
)

__getattr__ = FEATURE.resolve
