#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused_add_embedding_index_remainder_sin_0(const int64_t* in_ptr0,
                       const float* in_ptr1,
                       const int64_t* in_ptr2,
                       const float* in_ptr3,
                       const float* in_ptr4,
                       float* out_ptr0,
                       float* out_ptr1,
                       const int64_t ks0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    {
        #pragma GCC ivdep
        for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(24L); x0+=static_cast<int64_t>(1L))
        {
            for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(8L); x1+=static_cast<int64_t>(16L))
            {
                {
                    if(C10_LIKELY(x1 >= static_cast<int64_t>(0L) && x1 < static_cast<int64_t>(8L)))
                    {
                        auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
                        auto tmp5 = in_ptr2[static_cast<int64_t>(x0)];
                        auto tmp1 = tmp0;
                        auto tmp2 = c10::convert<int64_t>(tmp1);
                        AOTI_TORCH_CHECK((0 <= tmp2) & (tmp2 < 40L), "index out of bounds: 0 <= tmp2 < 40L");
                        auto tmp4 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x1 + 8L*tmp0), static_cast<int64_t>(8L));
                        auto tmp6 = static_cast<int64_t>(8);
                        auto tmp7 = mod(tmp5, tmp6);
                        auto tmp8 = static_cast<int32_t>(0);
                        auto tmp9 = tmp7 != tmp8;
                        auto tmp10 = std::signbit(tmp7);
                        auto tmp11 = std::signbit(tmp6);
                        auto tmp12 = tmp10 != tmp11;
                        auto tmp13 = tmp9 & tmp12;
                        auto tmp14 = int64_t(tmp7 + tmp6);
                        auto tmp15 = tmp13 ? tmp14 : tmp7;
                        auto tmp16 = tmp15;
                        auto tmp17 = c10::convert<int64_t>(tmp16);
                        AOTI_TORCH_CHECK((0 <= tmp17) & (tmp17 < 8L), "index out of bounds: 0 <= tmp17 < 8L");
                        auto tmp19 = at::vec::Vectorized<float>::loadu(in_ptr3 + static_cast<int64_t>(x1 + 8L*tmp15), static_cast<int64_t>(8L));
                        auto tmp20 = tmp4 + tmp19;
                        tmp20.store(out_ptr0 + static_cast<int64_t>(x1 + 8L*x0), static_cast<int64_t>(8L));
                    }
                }
            }
        }
    }
    {
        #pragma GCC ivdep
        for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(24L); x0+=static_cast<int64_t>(1L))
        {
            for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(5L); x1+=static_cast<int64_t>(16L))
            {
                {
                    if(C10_LIKELY(x1 >= static_cast<int64_t>(0L) && x1 < static_cast<int64_t>(5L)))
                    {
                        auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
                        auto tmp1 = static_cast<int64_t>(1);
                        auto tmp2 = int64_t(tmp0 + tmp1);
                        auto tmp3 = ks0;
                        auto tmp4 = c10::convert<int64_t>(tmp3);
                        auto tmp5 = int64_t(tmp2 + tmp4);
                        auto tmp6 = tmp2 < 0;
                        auto tmp7 = tmp6 ? tmp5 : tmp2;
                        auto tmp8 = tmp7;
                        auto tmp9 = c10::convert<int64_t>(tmp8);
                        AOTI_TORCH_CHECK((0 <= tmp9) & (tmp9 < ks0), "index out of bounds: 0 <= tmp9 < ks0");
                        auto tmp11 = at::vec::Vectorized<float>::loadu(in_ptr4 + static_cast<int64_t>(x1 + 5L*tmp7), static_cast<int64_t>(5L));
                        auto tmp12 = tmp11.sin();
                        tmp12.store(out_ptr1 + static_cast<int64_t>(x1 + 5L*x0), static_cast<int64_t>(5L));
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}
