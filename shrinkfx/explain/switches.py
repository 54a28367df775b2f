"""Inductor options that disable a decision of the compiler, with conservative values.

They are of PyTorch 2.11 to 2.15. An option that a version does not have, or that has
its conservative value already, is skipped. If either of two options is sufficient, the
search drops the first one. So an option that disables much comes before one that
disables a part of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SwitchDevice(Enum):
    """The device whose code a decision affects."""

    CPU = "CPU"
    CUDA = "CUDA"
    BOTH = "both"


@dataclass(frozen=True)
class Switch:
    """A decision of the compiler that an option disables.

    Attributes:
        conservative: the conservative value of the option, which disables the decision.
        what: a description of the decision.
    """

    option: str
    conservative: bool | int | str
    what: str
    on: SwitchDevice = SwitchDevice.BOTH

    def __str__(self) -> str:
        return f"{self.option}={self.conservative}"


SWITCHES = (
    # Code for the CPU.
    Switch("cpp.simdlen", 1, "vectorised code", SwitchDevice.CPU),
    Switch(
        "cpp.enable_loop_tail_vec", False, "vectorised loop tails", SwitchDevice.CPU
    ),
    Switch("cpp.threads", 1, "parallel loops", SwitchDevice.CPU),
    Switch(
        "cpp.enable_unsafe_math_opt_flag", False, "unsafe math of g++", SwitchDevice.CPU
    ),
    Switch(
        "cpp.enable_floating_point_contract_flag",
        "off",
        "fused a*b+c",
        SwitchDevice.CPU,
    ),
    Switch("cpp.use_decompose_tanh", False, "a decomposed tanh", SwitchDevice.CPU),
    Switch(
        "cpp.fallback_scatter_reduce_sum",
        True,
        "Inductor's own scatter",
        SwitchDevice.CPU,
    ),
    Switch("cpp.weight_prepack", False, "prepacked weights", SwitchDevice.CPU),
    # Fusion.
    Switch("max_fusion_size", 1, "fusion of kernels"),
    Switch("epilogue_fusion", False, "fused epilogues"),
    Switch("prologue_fusion", False, "fused prologues"),
    Switch("cpp.max_horizontal_fusion_size", 1, "horizontal fusion", SwitchDevice.CPU),
    Switch("aggressive_fusion", False, "aggressive fusion"),
    Switch("combo_kernels", False, "combined kernels"),
    Switch("loop_ordering_after_fusion", False, "reordered loops of fused kernels"),
    Switch("loop_reindexing_after_fusion", False, "reindexed loops of fused kernels"),
    Switch("loop_index_inversion_in_fusion", False, "inverted indices in fusion"),
    Switch("max_pointwise_cat_inputs", 0, "concatenation as a pointwise operator"),
    Switch("force_pointwise_cat", False, "concatenation as a pointwise operator"),
    # Shared memory.
    Switch("inplace_padding", False, "padding in place"),
    Switch("inplace_buffers", False, "results written over operands"),
    Switch("allow_buffer_reuse", False, "reuse of buffers"),
    Switch("memory_planning", False, "planned memory"),
    Switch(
        "aot_inductor.allow_stack_allocation",
        False,
        "buffers on the stack",
        SwitchDevice.CPU,
    ),
    Switch(
        "aot_inductor.use_minimal_arrayref_interface",
        False,
        "the minimal arrayref interface",
        SwitchDevice.CPU,
    ),
    # Graph passes. Two options are missing because correct programs do not compile
    # with them: constant_and_index_propagation=False (2.11: "NotImplementedError:
    # argument of type"), selective_decompose=True ("both a fallback and a decomp").
    Switch("pattern_matcher", False, "replaced patterns"),
    Switch("online_softmax", False, "online softmax"),
    Switch("apply_gumbel_max_trick", False, "the Gumbel-max trick"),
    Switch("optimize_scatter_upon_const_tensor", False, "scatter into constants"),
    Switch("efficient_conv_bn_eval_fx_passes", False, "folded batch normalisation"),
    Switch("permute_fusion", False, "fused permutations"),
    Switch("b2b_gemm_pass", False, "back-to-back matrix products"),
    Switch("decompose_mem_bound_mm", False, "decomposed matrix products"),
    Switch("conv_1x1_as_mm", False, "convolutions as matrix products"),
    Switch("joint_graph_constant_folding", False, "folded constants"),
    Switch("use_dce", False, "removal of dead code"),
    Switch("reorder_for_locality", False, "reordering for locality"),
    Switch("reorder_for_peak_memory", False, "reordering for memory"),
    Switch("freezing", False, "freezing"),
    Switch(
        "aot_inductor.use_runtime_constant_folding", False, "load-time constant folding"
    ),
    # Tensor layouts.
    Switch("layout_optimization", False, "layout optimisation"),
    Switch("shape_padding", False, "padded shapes"),
    Switch("force_shape_pad", False, "padded shapes"),
    Switch("pad_dynamic_shapes", False, "padded dynamic shapes"),
    Switch("pad_channels_last", False, "padded channels"),
    Switch("pad_outputs", False, "padded outputs"),
    Switch("comprehensive_padding", False, "padded strides"),
    Switch("keep_output_stride", True, "Inductor's own output strides"),
    Switch(
        "triton.divisible_by_16",
        False,
        "arguments known to be divisible by 16",
        SwitchDevice.CUDA,
    ),
    Switch("assume_aligned_inputs", False, "inputs taken for aligned"),
    Switch("assume_unaligned_fallback_output", True, "results taken for aligned"),
    Switch("assume_32bit_indexing", False, "32-bit indices"),
    # Reductions.
    Switch("unroll_reductions_threshold", 1, "unrolled reductions"),
    Switch("split_reductions", False, "split reductions"),
    Switch(
        "triton.persistent_reductions",
        False,
        "persistent reductions",
        SwitchDevice.CUDA,
    ),
    Switch(
        "triton.cooperative_reductions",
        False,
        "cooperative reductions",
        SwitchDevice.CUDA,
    ),
    Switch(
        "triton.force_cooperative_reductions",
        False,
        "cooperative reductions",
        SwitchDevice.CUDA,
    ),
    Switch(
        "triton.mix_order_reduction",
        False,
        "mixed-order reductions",
        SwitchDevice.CUDA,
    ),
    Switch("triton.nested_reduction", False, "nested reductions", SwitchDevice.CUDA),
    Switch("triton.tile_reductions", False, "tiled reductions", SwitchDevice.CUDA),
    Switch(
        "triton.scalar_accumulators", False, "accumulators by row", SwitchDevice.CUDA
    ),
    # Triton.
    Switch("triton.emit_pointer_range_32", False, "32-bit pointers", SwitchDevice.CUDA),
    Switch(
        "triton.coalesce_tiling_analysis",
        False,
        "tiling that coalesces",
        SwitchDevice.CUDA,
    ),
    Switch(
        "triton.prefer_nd_tiling",
        False,
        "tiling in several dimensions",
        SwitchDevice.CUDA,
    ),
    Switch("triton.max_tiles", 1, "tiling", SwitchDevice.CUDA),
    Switch("triton.use_block_ptr", False, "block pointers", SwitchDevice.CUDA),
    Switch(
        "triton.use_tensor_descriptor", False, "tensor descriptors", SwitchDevice.CUDA
    ),
    Switch("triton.multi_kernel", 0, "a run-time choice of kernels", SwitchDevice.CUDA),
    # Autotuning.
    Switch("max_autotune", False, "autotuning"),
    Switch("max_autotune_gemm", False, "autotuned matrix products"),
    Switch("max_autotune_pointwise", False, "autotuned pointwise kernels"),
    Switch("coordinate_descent_tuning", False, "tuning by coordinate descent"),
    # Numerics.
    Switch("emulate_precision_casts", True, "roundings left out between operators"),
    Switch(
        "eager_numerics.division_rounding",
        True,
        "approximate division",
        SwitchDevice.CUDA,
    ),
    Switch("use_fast_math", False, "fast math", SwitchDevice.CUDA),
    Switch("fallback_random", True, "Inductor's own random numbers"),
    # The library.
    Switch(
        "aot_inductor.compile_wrapper_opt_level",
        "O0",
        "an optimised wrapper",
        SwitchDevice.CPU,
    ),
    Switch(
        "aot_inductor.enable_lto", False, "link-time optimisation", SwitchDevice.CPU
    ),
    Switch(
        "aot_inductor.weight_use_caching_allocator",
        False,
        "cached weights",
        SwitchDevice.CUDA,
    ),
)
