"""Energy and rates of operators by their counted work, and how a share of the best rate reads."""

import pytest

from jouletrace.analysis.efficiency import efficiency, formats_of
from jouletrace.report.columns import of_best
from jouletrace.run import Estimate

RATES = {"flops_per_s": {"bf16": 733e12}, "bytes_per_s": 2.71e12}


def kernel(id, name, op="aten.mm", shapes="bf16[8,8]"):
    return {"id": id, "parent": 10, "level": "kernel", "name": name, "op": op, "shapes": shapes}


def test_rates_are_shares_of_the_best_ones_of_their_format_and_of_copies():
    found = efficiency((374e9, 1.355e9), Estimate(0.5), 1e-3, RATES, "bf16")
    assert (found["flops_share"].value, found["bytes_share"].value) == (pytest.approx(374 / 733), pytest.approx(0.5))
    assert str(of_best(found, "flops_share")).replace("\u00a0", " ") == "51 % of 733 TFLOP/s bf16"
    assert str(of_best(found, "bytes_share")).replace("\u00a0", " ") == "50 % of 2.71 TB/s copy"


def test_a_share_is_null_where_no_best_rate_was_measured_and_missing_in_older_calibrations():
    found = efficiency((374e9, 1.355e9), Estimate(0.5), 1e-3, RATES, "fp64")
    assert (found["flops_share"].value, found["flops_share"].reason) == (None, "no_best_rate")
    assert str(of_best(found, "flops_share")) == "–"
    assert "best_flops_per_s" not in found
    assert efficiency((0.0, 1e9), Estimate(0.5), 1e-3, RATES)["flops_share"].reason == "no_formula"
    assert "flops_share" not in efficiency((374e9, 1.355e9), Estimate(0.5), 1e-3, None, "bf16")


@pytest.mark.parametrize(
    ("names", "number_format"),
    [
        (["nvjet_sm90_tst_128x256"], "bf16"),
        (["nvjet_sm90_sss_128x128"], "tf32"),
        (["ampere_sgemm_128x64_tn"], "fp32"),
        (["nvjet_sm90_hsh_128x256", "cublasLt::splitKreduce_kernel<float>"], "fp16"),
        (["memset", "vectorized_elementwise_kernel<float>", "ampere_fp16_s16816gemm_fp16"], "fp16"),
        (["ampere_sgemm_128x64_tn", "nvjet_sm90_tst_128x256"], None),
    ],
)
def test_an_operator_multiplies_in_the_format_of_its_products(names, number_format):
    units = [kernel(id, name) for id, name in enumerate(names)]
    assert formats_of(units).get(10) == number_format
