extern "C"  void  cpp_fused_add_expand_gather_gt_index_index_select_mul_relu_remainder_sum_unsqueeze_where_0(const int64_t* in_ptr0,
                       const float* in_ptr1,
                       float* out_ptr0,
                       float* out_ptr1,
                       float* out_ptr2,
                       const int64_t ks0,
                       const int64_t ks1)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    {
        #pragma GCC ivdep
        for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(ks0); x0+=static_cast<int64_t>(1L))
        {
            {
                float tmp_acc0 = 0;
                at::vec::Vectorized<float> tmp_acc0_vec = at::vec::Vectorized<float>(0);
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(20L); x1+=static_cast<int64_t>(16L))
                {
                    {
                        if(C10_LIKELY(x1 >= static_cast<int64_t>(0) && x1 < static_cast<int64_t>(16L)))
                        {
                            auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
                            auto tmp1 = static_cast<int64_t>(0);
                            auto tmp2 = tmp0 > tmp1;
                            auto tmp3 = static_cast<int64_t>(2);
                            auto tmp4 = int64_t(tmp0 * tmp3);
                            auto tmp5 = static_cast<int64_t>(1);
                            auto tmp6 = int64_t(tmp4 + tmp5);
                            auto tmp7 = tmp2 ? tmp6 : tmp0;
                            auto tmp8 = ks1;
                            auto tmp9 = c10::convert<int64_t>(tmp8);
                            auto tmp10 = int64_t(tmp7 + tmp9);
                            auto tmp11 = tmp7 < 0;
                            auto tmp12 = tmp11 ? tmp10 : tmp7;
                            auto tmp13 = tmp12;
                            auto tmp14 = c10::convert<int64_t>(tmp13);
                            AOTI_TORCH_CHECK((0 <= tmp14) & (tmp14 < ks1), "index out of bounds: 0 <= tmp14 < ks1");
                            auto tmp16 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x1 + 20L*tmp12), static_cast<int64_t>(16));
                            auto tmp17 = at::vec::clamp_min(tmp16, decltype(tmp16)(0));
                            tmp_acc0_vec = tmp_acc0_vec + tmp17;
                        }
                        if(C10_UNLIKELY(x1 >= static_cast<int64_t>(16L) && x1 < static_cast<int64_t>(20L)))
                        {
                            auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
                            auto tmp1 = static_cast<int64_t>(0);
                            auto tmp2 = tmp0 > tmp1;
                            auto tmp3 = static_cast<int64_t>(2);
                            auto tmp4 = int64_t(tmp0 * tmp3);
                            auto tmp5 = static_cast<int64_t>(1);
                            auto tmp6 = int64_t(tmp4 + tmp5);
                            auto tmp7 = tmp2 ? tmp6 : tmp0;
                            auto tmp8 = ks1;
                            auto tmp9 = c10::convert<int64_t>(tmp8);
                            auto tmp10 = int64_t(tmp7 + tmp9);
                            auto tmp11 = tmp7 < 0;
                            auto tmp12 = tmp11 ? tmp10 : tmp7;
                            auto tmp13 = tmp12;
                            auto tmp14 = c10::convert<int64_t>(tmp13);
                            AOTI_TORCH_CHECK((0 <= tmp14) & (tmp14 < ks1), "index out of bounds: 0 <= tmp14 < ks1");
                            auto tmp16 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x1 + 20L*tmp12), static_cast<int64_t>(4L));
                            auto tmp17 = at::vec::clamp_min(tmp16, decltype(tmp16)(0));
                            tmp_acc0_vec = sum_masked_reduce(tmp_acc0_vec, tmp17, static_cast<int64_t>(4L));
                        }
                    }
                }
                tmp_acc0 = tmp_acc0 + at::vec::vec_reduce_all<float, 1>([](at::vec::Vectorized<float>& x, at::vec::Vectorized<float>& y) { return x + y; }, tmp_acc0_vec);
                out_ptr0[static_cast<int64_t>(x0)] = static_cast<float>(tmp_acc0);
            }
        }
    }
    {
        #pragma GCC ivdep
        for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(ks0); x0+=static_cast<int64_t>(1L))
        {
            for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(20L); x1+=static_cast<int64_t>(16L))
            {
                {
                    if(C10_LIKELY(x1 >= static_cast<int64_t>(0) && x1 < static_cast<int64_t>(16L)))
                    {
                        auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
                        auto tmp1 = ks1;
                        auto tmp2 = c10::convert<int64_t>(tmp1);
                        auto tmp3 = int64_t(tmp0 + tmp2);
                        auto tmp4 = tmp0 < 0;
                        auto tmp5 = tmp4 ? tmp3 : tmp0;
                        auto tmp6 = tmp5;
                        auto tmp7 = c10::convert<int64_t>(tmp6);
                        AOTI_TORCH_CHECK((0 <= tmp7) & (tmp7 < ks1), "index out of bounds: 0 <= tmp7 < ks1");
                        auto tmp9 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x1 + 20L*tmp5), static_cast<int64_t>(16));
                        auto tmp10 = static_cast<int64_t>(3);
                        auto tmp11 = mod(tmp0, tmp10);
                        auto tmp12 = static_cast<int32_t>(0);
                        auto tmp13 = tmp11 != tmp12;
                        auto tmp14 = std::signbit(tmp11);
                        auto tmp15 = std::signbit(tmp10);
                        auto tmp16 = tmp14 != tmp15;
                        auto tmp17 = tmp13 & tmp16;
                        auto tmp18 = int64_t(tmp11 + tmp10);
                        auto tmp19 = tmp17 ? tmp18 : tmp11;
                        auto tmp20 = tmp19;
                        auto tmp21 = c10::convert<int64_t>(tmp20);
                        AOTI_TORCH_CHECK((0 <= tmp21) & (tmp21 < 20L), "index out of bounds: 0 <= tmp21 < 20L");
                        auto tmp23 = in_ptr1[static_cast<int64_t>(tmp19 + 20L*x0)];
                        auto tmp24 = at::vec::Vectorized<float>(tmp23);
                        tmp9.store(out_ptr1 + static_cast<int64_t>(x1 + 20L*x0));
                        tmp24.store(out_ptr2 + static_cast<int64_t>(x1 + 20L*x0));
                    }
                    if(C10_UNLIKELY(x1 >= static_cast<int64_t>(16L) && x1 < static_cast<int64_t>(20L)))
                    {
                        auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
                        auto tmp1 = ks1;
                        auto tmp2 = c10::convert<int64_t>(tmp1);
                        auto tmp3 = int64_t(tmp0 + tmp2);
                        auto tmp4 = tmp0 < 0;
                        auto tmp5 = tmp4 ? tmp3 : tmp0;
                        auto tmp6 = tmp5;
                        auto tmp7 = c10::convert<int64_t>(tmp6);
                        AOTI_TORCH_CHECK((0 <= tmp7) & (tmp7 < ks1), "index out of bounds: 0 <= tmp7 < ks1");
                        auto tmp9 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x1 + 20L*tmp5), static_cast<int64_t>(4L));
                        auto tmp10 = static_cast<int64_t>(3);
                        auto tmp11 = mod(tmp0, tmp10);
                        auto tmp12 = static_cast<int32_t>(0);
                        auto tmp13 = tmp11 != tmp12;
                        auto tmp14 = std::signbit(tmp11);
                        auto tmp15 = std::signbit(tmp10);
                        auto tmp16 = tmp14 != tmp15;
                        auto tmp17 = tmp13 & tmp16;
                        auto tmp18 = int64_t(tmp11 + tmp10);
                        auto tmp19 = tmp17 ? tmp18 : tmp11;
                        auto tmp20 = tmp19;
                        auto tmp21 = c10::convert<int64_t>(tmp20);
                        AOTI_TORCH_CHECK((0 <= tmp21) & (tmp21 < 20L), "index out of bounds: 0 <= tmp21 < 20L");
                        auto tmp23 = in_ptr1[static_cast<int64_t>(tmp19 + 20L*x0)];
                        auto tmp24 = at::vec::Vectorized<float>(tmp23);
                        tmp9.store(out_ptr1 + static_cast<int64_t>(x1 + 20L*x0), static_cast<int64_t>(4L));
                        tmp24.store(out_ptr2 + static_cast<int64_t>(x1 + 20L*x0), static_cast<int64_t>(4L));
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}
