"""Least squares and what follows from it: no word of GPUs."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "contrast": "Contrast",
        "interval": "Z95 expanded",
        "quantiles": "student",
        "regression": "LinearPrior equivalent_noise",
        "several": "holm",
        "stopping": "two_stage_estimate windows_needed",
    },
)
