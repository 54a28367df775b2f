"""AOTInductor's calls of g++, and the text that all of its wrappers share."""

from shrinkfx.worker.private_api.feature import Feature

_RUNTIME = "include/torch/csrc/inductor/aoti_runtime"
INTERFACE = "_inductor/codegen/aoti_runtime/interface.cpp"
"""The file in the folder of torch with which each wrapper begins."""

MODEL_TEMPLATE = "this->kernels_ = std::make_unique<AOTInductorModelKernels>();"
"""The only template in a wrapper whose argument is a type of the model itself."""

FEATURE = Feature(
    "fast build",
    names={
        "codecache": "torch._inductor.codecache",
        "CppBuilder": "torch._inductor.cpp_builder:CppBuilder",
        "get_compiler_version_info": (
            "torch._inductor.cpp_builder:get_compiler_version_info"
        ),
        "VecISA": "torch._inductor.cpu_vec_isa:VecISA",
    },
    attributes=(
        "CppBuilder.build",
        "CppBuilder.get_command_line",
        "CppBuilder.get_target_file_path",
        "VecISA.check_build",
        "codecache._precompile_header",
    ),
    texts={
        INTERFACE: ("#include <torch/csrc/inductor/aoti_runtime/model_container.h>",),
        "_inductor/codegen/cpp_wrapper_cpu.py": (MODEL_TEMPLATE,),
        f"{_RUNTIME}/model_base.h": (
            "class AOTInductorModelBase",
            "using ConstantMap =",
            "RAII_cpuMalloc(",
            "constants_info_",
        ),
        f"{_RUNTIME}/utils.h": (
            "class RAIIAtenTensorHandle",
            "class RAIIAtenRecordFunctionHandle",
            "class RAIIC10IValueHandle",
            "class ConstantHandle",
            "steal_from_raw_handles_to_raii_handles(",
        ),
    },
    without=(
        "AOTInductor's own build is used for each candidate, which takes about five "
        "times the CPU time"
    ),
)

__getattr__ = FEATURE.resolve
