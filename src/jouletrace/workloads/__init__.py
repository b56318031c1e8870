"""Workloads: built-in models, user models, any callable. torch is imported only when one is built."""

from jouletrace.public import public_names
from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.registry import names, resolve
from jouletrace.workloads.user import ObjectWorkload

__all__ = ["Built", "ObjectWorkload", "Workload", "WorkloadOptions", "names", "resolve"]

__getattr__ = public_names(
    __name__,
    {
        "training": "ImageFolder ImageLoader",
        "transformers_models": "typed_overrides",
        "user_code": "memory_guard",
    },
)
