"""Which kernel feeds which, in code of AOTInductor and of Inductor."""

from __future__ import annotations

from shrinkfx.explain.guide import find_feeding_kernels, find_reused_buffers

CPP = """
extern "C"  void  cpp_fused_roll_2(const float* in_ptr0,
    cpp_fused_flip_0((const float*)(arg0_1.data_ptr()), (float*)(buf0.data_ptr()));
    cpp_fused_exp_1((const float*)(arg0_1.data_ptr()), (float*)(buf1.data_ptr()));
    cpp_fused_roll_2((const float*)(buf0.data_ptr()), (float*)(buf2.data_ptr()), s0);
"""
PYTHON = """
            triton_poi_fused_mul_0.run(arg0_1, buf1, 150, stream=raw_stream0)
            del arg0_1
            softclip_kernel_0.run(buf1, buf0, 5, 1, 1, stream=raw_stream0)
            triton_poi_fused_add_1.run(buf1, buf0, 150, stream=raw_stream0)
"""
WITH_OPERATORS = """
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, n, s, &buf0_handle));
    RAIIAtenTensorHandle buf0(buf0_handle);
    cpp_fused_sum_0((const float*)(arg0_1.data_ptr()), (int64_t*)(buf0.data_ptr()));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_cumsum(buf0, 0L, &var_0, &buf2_handle));
    RAIIAtenTensorHandle buf2(buf2_handle);
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(1, n, s, &buf4_handle));
    cpp_fused_index_1((const int64_t*)(buf2.data_ptr()), (float*)(buf4.data_ptr()));
"""
CALLED = "cpp_fused_sum_0", "aoti_torch_cpu_cumsum", "cpp_fused_index_1"
KERNELS = "cpp_fused_flip_0", "cpp_fused_exp_1", "cpp_fused_roll_2"


def test_feeding_kernels_are_the_writers_of_the_read_buffers() -> None:
    assert find_feeding_kernels(CPP, KERNELS, "cpp_fused_roll_2") == (
        "cpp_fused_flip_0",
    )
    assert find_feeding_kernels(PYTHON, (), "softclip_kernel_0") == (
        "triton_poi_fused_mul_0",
    )


def test_reader_of_a_buffer_is_not_a_feeding_kernel() -> None:
    assert find_feeding_kernels(PYTHON, (), "triton_poi_fused_add_1") == (
        *("triton_poi_fused_mul_0", "softclip_kernel_0"),
    )


def test_first_and_unknown_kernels_have_no_feeding_kernels() -> None:
    assert find_feeding_kernels(CPP, KERNELS, "cpp_fused_flip_0") == ()
    assert find_feeding_kernels(CPP, KERNELS, "nobody") == ()


def test_operator_calls_count_as_feeding_kernels() -> None:
    assert find_feeding_kernels(WITH_OPERATORS, CALLED, CALLED[-1]) == (
        "aoti_torch_cpu_cumsum",
    )
    assert find_feeding_kernels(WITH_OPERATORS, CALLED, CALLED[1]) == (
        "cpp_fused_sum_0",
    )
    python = "  extern_kernels.mm(arg0_1, arg1_1, out=buf0)\n  k_0.run(buf0, buf1, 3)\n"
    assert find_feeding_kernels(python, (), "k_0") == ("extern_kernels.mm",)


def test_result_buffers_are_not_reused_buffers() -> None:
    assert find_reused_buffers(WITH_OPERATORS, CALLED, CALLED[-1]) == {"buf2"}
    assert find_reused_buffers(WITH_OPERATORS, CALLED, CALLED[0]) == frozenset()
    assert find_reused_buffers(PYTHON, (), "triton_poi_fused_add_1") == {"buf0", "buf1"}
    assert find_reused_buffers(PYTHON, (), "nobody") == frozenset()
