extern "C"  void  cpp_fused_constant_pad_nd_index_mul_remainder_sin_0(const int64_t* in_ptr0,
                       const float* in_ptr1,
                       float* out_ptr0,
                       float* out_ptr1,
                       const int64_t ks0)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    {
        for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(39L); x0+=static_cast<int64_t>(16L))
        {
            {
                if(C10_LIKELY(x0 >= static_cast<int64_t>(0) && x0 < static_cast<int64_t>(32L)))
                {
                    auto tmp0 = (-1L) + x0;
                    auto tmp1 = c10::convert<int64_t>(tmp0);
                    auto tmp2 = at::vec::VectorizedN<int64_t,2>::arange(tmp1, 1);
                    auto tmp3 = static_cast<int64_t>(0);
                    auto tmp4 = at::vec::VectorizedN<int64_t,2>(tmp3);
                    auto tmp5 = at::vec::VecMask<int64_t,2>(tmp2 >= tmp4);
                    auto tmp6 = static_cast<int64_t>(37);
                    auto tmp7 = at::vec::VectorizedN<int64_t,2>(tmp6);
                    auto tmp8 = at::vec::VecMask<int64_t,2>(tmp2 < tmp7);
                    auto tmp9 = tmp5 & tmp8;
                    auto tmp10 = [&]
                    {
                        auto tmp11 = tmp9.template cast<float,1>().template loadu<int64_t,2>(in_ptr0 + static_cast<int64_t>((-1L) + x0));
                        auto tmp12 = ks0;
                        auto tmp13 = c10::convert<int64_t>(tmp12);
                        auto tmp14 = at::vec::VectorizedN<int64_t,2>(tmp13);
                        auto tmp15 = tmp11 + tmp14;
                        auto tmp16 = at::vec::VecMask<int64_t,2>(tmp11 < tmp4);
                        auto tmp17 = decltype(tmp15)::blendv(tmp11, tmp15, tmp16.template cast<int64_t,2>());
                        auto tmp18 =
                        [&]
                        {
                            __at_align__ std::array<int64_t, 16> tmpbuf;
                            tmp17.store(tmpbuf.data(), static_cast<int64_t>(16));
                            return tmpbuf;
                        }
                        ()
                        ;
                        auto tmp19 =
                        [&]
                        {
                            __at_align__ std::array<int64_t, 16> tmpbuf;
                            #pragma GCC unroll 16
                            for (long x0_inner = 0; x0_inner < static_cast<int64_t>(16); x0_inner++)
                            {
                                if (tmp9.is_masked(x0_inner))
                                {
                                    tmpbuf[x0_inner] = static_cast<int64_t>(tmp18[x0_inner]);
                                }
                            }
                            return at::vec::VectorizedN<int64_t,2>::loadu(tmpbuf.data(), static_cast<int64_t>(16));
                        }
                        ()
                        ;
                        AOTI_TORCH_CHECK(((at::vec::VecMask<int64_t,2>((at::vec::VectorizedN<int64_t,2>(0) <= tmp19) & (tmp19 < at::vec::VectorizedN<int64_t,2>(ks0)))) | ~(tmp9)).all_masked(), "index out of bounds: 0 <= tmp19 < ks0");
                        auto tmp21 =
                        [&]
                        {
                            __at_align__ std::array<float, 16> tmpbuf;
                            #pragma GCC unroll 16
                            for (long x0_inner = 0; x0_inner < static_cast<int64_t>(16); x0_inner++)
                            {
                                if (tmp9.is_masked(x0_inner))
                                {
                                    tmpbuf[x0_inner] = in_ptr1[static_cast<int64_t>(tmp18[x0_inner])];
                                }
                            }
                            return at::vec::Vectorized<float>::loadu(tmpbuf.data(), static_cast<int64_t>(16));
                        }
                        ()
                        ;
                        auto tmp22 = tmp21.sin();
                        return tmp22;
                    }
                    ;
                    auto tmp25 =
                    [&]
                    {
                        if (tmp9.all_zero())
                        {
                            return at::vec::Vectorized<float>(static_cast<float>(0.0));
                        }
                        else
                        {
                            auto tmp23 = tmp10();
                            auto tmp24 = at::vec::Vectorized<float>(static_cast<float>(0.0));
                            return decltype(tmp23)::blendv(tmp24, tmp23, tmp9.template cast<float,1>());
                        }
                    }
                    ()
                    ;
                    auto tmp26 = static_cast<float>(2.0);
                    auto tmp27 = at::vec::Vectorized<float>(tmp26);
                    auto tmp28 = tmp25 * tmp27;
                    tmp28.store(out_ptr0 + static_cast<int64_t>(x0));
                }
                if(C10_UNLIKELY(x0 >= static_cast<int64_t>(32L) && x0 < static_cast<int64_t>(39L)))
                {
                    auto tmp0 = (-1L) + x0;
                    auto tmp1 = c10::convert<int64_t>(tmp0);
                    auto tmp2 = at::vec::VectorizedN<int64_t,2>::arange(tmp1, 1);
                    auto tmp3 = static_cast<int64_t>(0);
                    auto tmp4 = at::vec::VectorizedN<int64_t,2>(tmp3);
                    auto tmp5 = at::vec::VecMask<int64_t,2>(tmp2 >= tmp4);
                    auto tmp6 = static_cast<int64_t>(37);
                    auto tmp7 = at::vec::VectorizedN<int64_t,2>(tmp6);
                    auto tmp8 = at::vec::VecMask<int64_t,2>(tmp2 < tmp7);
                    auto tmp9 = tmp5 & tmp8;
                    auto tmp10 = [&]
                    {
                        auto tmp11 = tmp9.template cast<float,1>().template loadu<int64_t,2>(in_ptr0 + static_cast<int64_t>((-1L) + x0));
                        auto tmp12 = ks0;
                        auto tmp13 = c10::convert<int64_t>(tmp12);
                        auto tmp14 = at::vec::VectorizedN<int64_t,2>(tmp13);
                        auto tmp15 = tmp11 + tmp14;
                        auto tmp16 = at::vec::VecMask<int64_t,2>(tmp11 < tmp4);
                        auto tmp17 = decltype(tmp15)::blendv(tmp11, tmp15, tmp16.template cast<int64_t,2>());
                        auto tmp18 =
                        [&]
                        {
                            __at_align__ std::array<int64_t, 16> tmpbuf;
                            tmp17.store(tmpbuf.data(), static_cast<int64_t>(7L));
                            return tmpbuf;
                        }
                        ()
                        ;
                        auto tmp19 =
                        [&]
                        {
                            __at_align__ std::array<int64_t, 16> tmpbuf;
                            #pragma GCC unroll 16
                            for (long x0_inner = 0; x0_inner < static_cast<int64_t>(7L); x0_inner++)
                            {
                                if (tmp9.is_masked(x0_inner))
                                {
                                    tmpbuf[x0_inner] = static_cast<int64_t>(tmp18[x0_inner]);
                                }
                            }
                            return at::vec::VectorizedN<int64_t,2>::loadu(tmpbuf.data(), static_cast<int64_t>(7L));
                        }
                        ()
                        ;
                        AOTI_TORCH_CHECK((at::vec::VecMask<int64_t,2>::set(at::vec::VecMask<int64_t,2>::from(1), ((at::vec::VecMask<int64_t,2>((at::vec::VectorizedN<int64_t,2>(0) <= tmp19) & (tmp19 < at::vec::VectorizedN<int64_t,2>(ks0)))) | ~(tmp9)), static_cast<int64_t>(7L))).all_masked(), "index out of bounds: 0 <= tmp19 < ks0");
                        auto tmp21 =
                        [&]
                        {
                            __at_align__ std::array<float, 16> tmpbuf;
                            #pragma GCC unroll 16
                            for (long x0_inner = 0; x0_inner < static_cast<int64_t>(7L); x0_inner++)
                            {
                                if (tmp9.is_masked(x0_inner))
                                {
                                    tmpbuf[x0_inner] = in_ptr1[static_cast<int64_t>(tmp18[x0_inner])];
                                }
                            }
                            return at::vec::Vectorized<float>::loadu(tmpbuf.data(), static_cast<int64_t>(7L));
                        }
                        ()
                        ;
                        auto tmp22 = tmp21.sin();
                        return tmp22;
                    }
                    ;
                    auto tmp25 =
                    [&]
                    {
                        if (tmp9.all_zero())
                        {
                            return at::vec::Vectorized<float>(static_cast<float>(0.0));
                        }
                        else
                        {
                            auto tmp23 = tmp10();
                            auto tmp24 = at::vec::Vectorized<float>(static_cast<float>(0.0));
                            return decltype(tmp23)::blendv(tmp24, tmp23, tmp9.template cast<float,1>());
                        }
                    }
                    ()
                    ;
                    auto tmp26 = static_cast<float>(2.0);
                    auto tmp27 = at::vec::Vectorized<float>(tmp26);
                    auto tmp28 = tmp25 * tmp27;
                    tmp28.store(out_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(7L));
                }
            }
        }
    }
    {
        for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(37L); x0+=static_cast<int64_t>(16L))
        {
            {
                if(C10_LIKELY(x0 >= static_cast<int64_t>(0) && x0 < static_cast<int64_t>(32L)))
                {
                    auto tmp0 = at::vec::VectorizedN<int64_t,2>::loadu(in_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(16));
                    auto tmp1 = static_cast<int64_t>(7);
                    auto tmp2 = at::vec::VectorizedN<int64_t,2>(tmp1);
                    auto tmp3 = remainder_integral(tmp0, tmp2);
                    auto tmp4 = ks0;
                    auto tmp5 = c10::convert<int64_t>(tmp4);
                    auto tmp6 = at::vec::VectorizedN<int64_t,2>(tmp5);
                    auto tmp7 = tmp3 + tmp6;
                    auto tmp8 = static_cast<int64_t>(0);
                    auto tmp9 = at::vec::VectorizedN<int64_t,2>(tmp8);
                    auto tmp10 = at::vec::VecMask<int64_t,2>(tmp3 < tmp9);
                    auto tmp11 = decltype(tmp7)::blendv(tmp3, tmp7, tmp10.template cast<int64_t,2>());
                    auto tmp12 =
                    [&]
                    {
                        __at_align__ std::array<int64_t, 16> tmpbuf;
                        tmp11.store(tmpbuf.data(), static_cast<int64_t>(16));
                        return tmpbuf;
                    }
                    ()
                    ;
                    auto tmp13 =
                    [&]
                    {
                        __at_align__ std::array<int64_t, 16> tmpbuf;
                        #pragma GCC unroll 16
                        for (long x0_inner = 0; x0_inner < static_cast<int64_t>(16); x0_inner++)
                        {
                            tmpbuf[x0_inner] = static_cast<int64_t>(tmp12[x0_inner]);
                        }
                        return at::vec::VectorizedN<int64_t,2>::loadu(tmpbuf.data(), static_cast<int64_t>(16));
                    }
                    ()
                    ;
                    AOTI_TORCH_CHECK((at::vec::VecMask<int64_t,2>((at::vec::VectorizedN<int64_t,2>(0) <= tmp13) & (tmp13 < at::vec::VectorizedN<int64_t,2>(ks0)))).all_masked(), "index out of bounds: 0 <= tmp13 < ks0");
                    auto tmp15 =
                    [&]
                    {
                        __at_align__ std::array<float, 16> tmpbuf;
                        #pragma GCC unroll 16
                        for (long x0_inner = 0; x0_inner < static_cast<int64_t>(16); x0_inner++)
                        {
                            tmpbuf[x0_inner] = in_ptr1[static_cast<int64_t>(tmp12[x0_inner])];
                        }
                        return at::vec::Vectorized<float>::loadu(tmpbuf.data(), static_cast<int64_t>(16));
                    }
                    ()
                    ;
                    auto tmp16 = tmp15.sin();
                    tmp16.store(out_ptr1 + static_cast<int64_t>(x0));
                }
                if(C10_UNLIKELY(x0 >= static_cast<int64_t>(32L) && x0 < static_cast<int64_t>(37L)))
                {
                    auto tmp0 = at::vec::VectorizedN<int64_t,2>::loadu(in_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(5L));
                    auto tmp1 = static_cast<int64_t>(7);
                    auto tmp2 = at::vec::VectorizedN<int64_t,2>(tmp1);
                    auto tmp3 = remainder_integral(tmp0, tmp2);
                    auto tmp4 = ks0;
                    auto tmp5 = c10::convert<int64_t>(tmp4);
                    auto tmp6 = at::vec::VectorizedN<int64_t,2>(tmp5);
                    auto tmp7 = tmp3 + tmp6;
                    auto tmp8 = static_cast<int64_t>(0);
                    auto tmp9 = at::vec::VectorizedN<int64_t,2>(tmp8);
                    auto tmp10 = at::vec::VecMask<int64_t,2>(tmp3 < tmp9);
                    auto tmp11 = decltype(tmp7)::blendv(tmp3, tmp7, tmp10.template cast<int64_t,2>());
                    auto tmp12 =
                    [&]
                    {
                        __at_align__ std::array<int64_t, 16> tmpbuf;
                        tmp11.store(tmpbuf.data(), static_cast<int64_t>(5L));
                        return tmpbuf;
                    }
                    ()
                    ;
                    auto tmp13 =
                    [&]
                    {
                        __at_align__ std::array<int64_t, 16> tmpbuf;
                        #pragma GCC unroll 16
                        for (long x0_inner = 0; x0_inner < static_cast<int64_t>(5L); x0_inner++)
                        {
                            tmpbuf[x0_inner] = static_cast<int64_t>(tmp12[x0_inner]);
                        }
                        return at::vec::VectorizedN<int64_t,2>::loadu(tmpbuf.data(), static_cast<int64_t>(5L));
                    }
                    ()
                    ;
                    AOTI_TORCH_CHECK((at::vec::VecMask<int64_t,2>::set(at::vec::VecMask<int64_t,2>::from(1), (at::vec::VecMask<int64_t,2>((at::vec::VectorizedN<int64_t,2>(0) <= tmp13) & (tmp13 < at::vec::VectorizedN<int64_t,2>(ks0)))), static_cast<int64_t>(5L))).all_masked(), "index out of bounds: 0 <= tmp13 < ks0");
                    auto tmp15 =
                    [&]
                    {
                        __at_align__ std::array<float, 16> tmpbuf;
                        #pragma GCC unroll 16
                        for (long x0_inner = 0; x0_inner < static_cast<int64_t>(5L); x0_inner++)
                        {
                            tmpbuf[x0_inner] = in_ptr1[static_cast<int64_t>(tmp12[x0_inner])];
                        }
                        return at::vec::Vectorized<float>::loadu(tmpbuf.data(), static_cast<int64_t>(5L));
                    }
                    ()
                    ;
                    auto tmp16 = tmp15.sin();
                    tmp16.store(out_ptr1 + static_cast<int64_t>(x0), static_cast<int64_t>(5L));
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}
