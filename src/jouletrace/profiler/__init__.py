"""The orchestration behind ``profile``, ``measure``, ``monitor``, ``calibrate`` and ``doctor``."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "ab": "AbSettings run_ab",
        "doctor": "diagnose",
        "gpu_settings": "GpuSettings restore",
        "passes": "warm_up",
        "profile": "profile_workload",
        "progress": "Progress",
        "settings": "ProfileSettings",
    },
)
