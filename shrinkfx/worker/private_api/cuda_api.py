"""Code generation for CUDA without a GPU."""

from shrinkfx.worker.private_api.feature import Feature

FEATURE = Feature(
    "CUDA programs without a GPU",
    names={
        "AlgorithmSelectorCache": (
            "torch._inductor.select_algorithm:AlgorithmSelectorCache"
        ),
        "AotCodeCompiler": "torch._inductor.codecache:AotCodeCompiler",
        "C": "torch._C",
        "CachingAutotuner": (
            "torch._inductor.runtime.triton_heuristics:CachingAutotuner"
        ),
        "ChoiceCaller": "torch._inductor.ir:ChoiceCaller",
        "CudaInterface": "torch._dynamo.device_interface:CudaInterface",
        "DeviceProperties": "torch._inductor.runtime.hints:DeviceProperties",
        "GraphLowering": "torch._inductor.graph:GraphLowering",
        "GridExpr": "torch._inductor.runtime.triton_heuristics:GridExpr",
        "Kernel": "torch._library.utils:Kernel",
        "PyCodeCache": "torch._inductor.codecache:PyCodeCache",
        "PythonWrapperCodegen": "torch._inductor.codegen.wrapper:PythonWrapperCodegen",
        "TritonTemplateCaller": "torch._inductor.select_algorithm:TritonTemplateCaller",
        "assert_size_stride": "torch._C._dynamo.guards:assert_size_stride",
        "compile_fx": "torch._inductor.compile_fx:compile_fx",
        "fake_tensor": "torch._subclasses.fake_tensor",
        "graph": "torch._inductor.graph",
        "has_computed_kernel": (
            "torch._C:_dispatch_has_computed_kernel_for_dispatch_key"
        ),
        "ir": "torch._inductor.ir",
        "is_functorch_wrapped_tensor": (
            "torch._C._functorch:is_functorch_wrapped_tensor"
        ),
        "is_key_excluded": "torch._C:_dispatch_tls_is_dispatch_key_excluded",
        "pexpr": "torch._inductor.codegen.wrapper:pexpr",
        "simple_registry": "torch._library.simple_registry",
        "triton_helpers": "torch._inductor.runtime.triton_helpers",
        "try_solve": "torch.utils._sympy.solve:try_solve",
        "utils": "torch._inductor.utils",
    },
    attributes=(
        "AlgorithmSelectorCache.do_autotuning",
        "AotCodeCompiler.compile",
        "CachingAutotuner.precompile",
        "CachingAutotuner.run",
        "CudaInterface.Worker",
        "DeviceProperties.create",
        "GraphLowering.save_output_code",
        "GridExpr.from_meta",
        "PyCodeCache.load",
        "PythonWrapperCodegen.codegen_input_symbol_assignment",
        "PythonWrapperCodegen.generate_and_run_autotune_block",
        "fake_tensor.FakeTensorMode.avoid_device_init",
        "fake_tensor.UnsupportedOperatorException",
        "graph.is_same_tensor",
        "ir.TensorBox",
        "simple_registry.singleton",
        "triton_helpers.set_driver_to_gpu",
        "utils.is_same_tensor",
    ),
    texts={
        "_inductor/codegen/wrapper.py": (
            "assert_size_stride = ",
            "empty_strided_cuda = ",
            "async_compile.triton(",
        ),
        "_inductor/utils.py": ("Topologically Sorted", "Original ATen: ["),
    },
    without="CUDA programs can only be checked on a GPU",
)

__getattr__ = FEATURE.resolve
