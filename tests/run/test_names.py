"""Kernel names for people: short, recognisable, and different where kernels differ."""

import pytest

from jouletrace.run import elided, short_name, short_names
from jouletrace.run.names import MOST, cut, with_article

ADD = "at::native::CUDAFunctor_add<c10::Half>"
GELU = (
    "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)"
    "::{lambda()#2}::operator()() const::{lambda()#%d}::operator()() const::{lambda(c10::Half)#1}"
)


def elementwise(functor: str, n: int = 3) -> str:
    return f"void at::native::vectorized_elementwise_kernel<8, {functor}, std::array<char*, {n}ul> >(int, {functor})"


NESTED = (
    f"void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<{ADD} >(at::TensorIteratorBase&, "
    f"{ADD} const&)::{{lambda(int)#1}}>(int, at::native::gpu_kernel_impl_nocast<{ADD} >(int)::{{lambda(int)#1}})"
)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (elementwise(ADD), "vectorized_elementwise_kernel<8, CUDAFunctor_add<Half>, …>"),
        (elementwise(GELU % 3, 2), "vectorized_elementwise_kernel<8, GeluCUDAKernelImpl(Half), …>"),
        (NESTED, "elementwise_kernel<128, 4, CUDAFunctor_add<Half>>"),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, float, false>(int, float)",
            "vectorized_layer_norm_kernel<Half, float, false>",
        ),
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::"
            "OpaqueType<2u>, unsigned int, 3, 64, 64>(at::native::(anonymous namespace)::OpaqueType<2u>*)",
            "CatArrayBatchedCopy<OpaqueType<2>, uint, 3, 64, 64>",
        ),
        (
            "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false, true, "
            "(cudnnKernelDataType_t)0>(cudnn::engines_precompiled::nchw2nhwc_params_t<float>, __half const*, __half*)",
            "cudnn::nchwToNhwcKernel<half, half, float, false, true, 0>",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(cutlass::Params)",
            "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2",
        ),
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0",
            "flash fprop f16 64x128x64",
        ),
        ("nvjet_sm90_hsh_64x40_64x16_2x4_h_bz_bias_TNT", "gemm f16 64x40 bias TNT"),
        ("nvjet_sm90_tst_32x64_64x16_1x4_h_bz_splitK_NNN", "gemm bf16 32x64 splitK NNN"),
        (
            "sm90_xmma_dgrad_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_"
            "execute_segment_k_off_kernel__5x_cudnn",
            "dgrad tf32 128x128",
        ),
        (
            "cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_tn_align8",
            "cutlass f16 s16816gemm relu f16 256x128 tn",
        ),
        (
            "void flash::flash_fwd_kernel<flash::Traits<64, 128>, true>(flash::P)",
            "flash::flash_fwd_kernel<Traits<64, 128>, true>",
        ),
        ("unsigned int scan<unsigned int>(unsigned int*)", "scan<uint>"),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256EEEvPT0_", "aiter::add_rmsnorm_quant_kernel<…>"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)"),
        ("[CUDA memcpy HtoD]", "[CUDA memcpy HtoD]"),
        ("launch and gaps", "launch and gaps"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("</script><img src=x onerror=a()>", "</script><img src=x onerror=a()>"),
        ("", ""),
    ],
)
def test_a_name_keeps_what_identifies_the_kernel(name, short):
    assert short_name(name) == short


@pytest.mark.parametrize(
    "name",
    [
        "void f<",
        "void f(((",
        "a::",
        "::",
        "void ",
        "f<a,>()",
        "x" * 500,
        "void <>()",
        "a<b>c>::d",
        "_Z",
        "_ZN9",
        "(*)(int)",
    ],
)
def test_odd_names_break_nothing_and_stay_bounded(name):
    assert 0 < len(short_name(name)) <= MOST


def test_kernels_that_differ_have_names_that_differ():
    names = [
        elementwise(GELU % 3),
        elementwise(GELU % 4),
        elementwise(ADD, 3),
        elementwise(ADD, 2),
        *(f"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT{n}x32x64_{'A' * 60}_WG64_4_1" for n in (16, 32, 256)),
        "void at::max_pool<float>(float*, int, int)",
        "void at::max_pool<float>(float*, long, long)",
    ]
    short = short_names([*names, *names])
    assert len(short) == len(names)
    assert len(set(short.values())) == len(names)
    assert "MT256x32x64" in short[names[6]]
    assert short[names[-1]].endswith("…long")


def test_a_name_that_stands_alone_gets_no_marks():
    assert short_names([elementwise(ADD)])[elementwise(ADD)] == short_name(elementwise(ADD))


def test_names_that_differ_in_nothing_readable_are_numbered():
    short = short_names(["void f<1>(int, long)", "void f<1>(long, int)"])
    assert sorted(short.values()) == ["f<1>", "f<1> (2)"]


@pytest.mark.parametrize("most", [1, 2, 5, 12, 40])
def test_what_is_too_long_is_exactly_as_long_as_allowed(most):
    for tail in (0.0, 0.4, 1.0):
        assert len(elided("deit.layers.11.attention.self.query.projection", most, tail)) == most


def test_of_a_name_cut_short_its_end_stays_as_asked():
    assert elided("deit.layers.0.attention.k_proj", 10, tail=1.0) == "…on.k_proj"
    assert elided("deit.layers.0.attention.k_proj", 11, tail=0.0) == "deit.layer…"


def test_a_long_text_is_cut_with_an_ellipsis():
    assert cut("a" * 80) == "a" * 80
    assert cut("a" * 81) == "a" * 79 + "…"
    assert len(cut("a" * 300_000, 300)) == 300


@pytest.mark.parametrize(("noun", "said"), [("import", "an import"), ("ab", "an ab"), ("bench", "a bench"), ("", "a ")])
def test_an_article_fits_its_noun(noun, said):
    assert with_article(noun) == said
