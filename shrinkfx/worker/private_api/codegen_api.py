"""Inductor's code generation: which code it generates for which operator."""

from shrinkfx.worker.private_api.feature import Feature

FEATURE = Feature(
    "causes from generated code",
    names={
        "CompilerBisector": "torch._inductor.compiler_bisector:CompilerBisector",
        "DispatchKey": "torch._C:DispatchKey",
        "PythonWrapperCodegen": "torch._inductor.codegen.wrapper:PythonWrapperCodegen",
        "V": "torch._inductor.virtualized:V",
        "common": "torch._inductor.codegen.common",
        "cpp": "torch._inductor.codegen.cpp",
        "debug": "torch._inductor.debug",
        "ir": "torch._inductor.ir",
        "logs": "torch._logging._internal",
        "loop_body": "torch._inductor.loop_body",
        "scheduler": "torch._inductor.scheduler",
        "select_decomp_table": "torch._inductor.decomposition:select_decomp_table",
        "triton": "torch._inductor.codegen.triton",
    },
    attributes=(
        "CompilerBisector.disable_subsystem",
        "DispatchKey.CompositeImplicitAutograd",
        "PythonWrapperCodegen.codegen_inplace_reuse",
        "PythonWrapperCodegen.define_kernel",
        "PythonWrapperCodegen.generate_kernel_call",
        "V.get_current_node",
        "V.graph",
        "V.interpreter",
        "common.CSE.generate",
        "debug._inductor_post_to_pre_grad_nodes",
        "debug._pre_grad_graph_id",
        "debug.create_kernel_information_json",
        "debug.reset_provenance_globals",
        "debug.set_kernel_post_grad_provenance_tracing",
        "ir.Loops.create",
        "ir.MultiOutput",
        "logs.LazyTraceHandler",
        "logs.TorchLogsFormatter",
        "logs.log_registry",
        "logs.set_logs",
        "logs.trace_log",
        "loop_body.LightTracer.create_node",
        "scheduler.Scheduler.codegen",
        "scheduler.Scheduler.codegen_extern_call",
    ),
    texts={
        "_inductor/codegen/cpp.py": ("AOTI_TORCH_CHECK", "index out of bounds: "),
        "_inductor/codegen/debug_utils.py": ("aoti_torch_save_tensor_handle(",),
    },
    without="the cause names no kernel, no line and no suspect operator",
)

__getattr__ = FEATURE.resolve
