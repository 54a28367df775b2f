"""Triton's interpreter, which runs the kernels of CUDA programs on the CPU."""

from shrinkfx.worker.private_api.feature import Feature

FEATURE = Feature(
    "Triton's interpreter",
    names={
        "Autotuner": "triton.runtime.autotuner:Autotuner",
        "GPUTarget": "triton.backends.compiler:GPUTarget",
        "InterpretedFunction": "triton.runtime.interpreter:InterpretedFunction",
        "JITFunction": "triton.runtime.jit:JITFunction",
        "TensorHandle": "triton.runtime.interpreter:TensorHandle",
        "driver": "triton.runtime:driver",
        "interpreter": "triton.runtime.interpreter",
        "interpreter_builder": "triton.runtime.interpreter:interpreter_builder",
    },
    attributes=(
        "Autotuner.run",
        "JITFunction.run",
        "driver.set_active",
        "interpreter.InterpretedFunction",
        "interpreter.InterpreterBuilder",
        "interpreter.ReduceOps",
        "interpreter.ScanOps",
        "interpreter.TensorHandle",
        "interpreter._get_np_dtype",
        "interpreter._implicit_cvt",
        "interpreter._patch_lang",
        "interpreter.interpreter_builder",
        "interpreter.interpreter_semantic",
        "interpreter_builder.set_grid_idx",
    ),
    without="CUDA programs can only be checked on a GPU",
)

__getattr__ = FEATURE.resolve
