"""AOTInductor's entry points, settings, cache and C++ compiler."""

from shrinkfx.worker.private_api.feature import Feature

FEATURE = Feature(
    "AOTInductor",
    names={
        "inductor": "torch._inductor",
        "config": "torch._inductor.config",
        "aoti_compile_and_package": "torch._inductor:aoti_compile_and_package",
        "aoti_load_package": "torch._inductor:aoti_load_package",
        "default_cache_dir": (
            "torch._inductor.runtime.cache_dir_utils:default_cache_dir"
        ),
        "get_cpp_compiler": "torch._inductor.cpp_builder:get_cpp_compiler",
        "InvalidCxxCompiler": "torch._inductor.exc:InvalidCxxCompiler",
        "BackendCompilerFailed": "torch._dynamo.exc:BackendCompilerFailed",
        "cpu_vec_isa": "torch._inductor.cpu_vec_isa",
        "dynamo_config": "torch._dynamo.config",
        "cpp_wrapper_cpu": "torch._inductor.codegen.cpp_wrapper_cpu",
        "compile_fx": "torch._inductor.compile_fx",
        "maybe_mark_dynamic": "torch._dynamo:maybe_mark_dynamic",
        "package": "torch._inductor.package",
        "select_algorithm": "torch._inductor.select_algorithm",
    },
    attributes=(
        "config.aot_inductor",
        "config.get_config_copy",
        "config.patch",
        "compile_fx.compile_fx",
        "dynamo_config.capture_dynamic_output_shape_ops",
        "dynamo_config.capture_scalar_outputs",
        "dynamo_config.patch",
        "cpu_vec_isa.pick_vec_isa",
    ),
    without="shrinkfx cannot start",
)

__getattr__ = FEATURE.resolve
