"""Workloads: built-in models, user models, any callable. torch is imported only when one is built."""

from jouletrace.workloads.base import Built, Workload
from jouletrace.workloads.options import WorkloadOptions
from jouletrace.workloads.registry import names, resolve
from jouletrace.workloads.user import ObjectWorkload

__all__ = ["Built", "ObjectWorkload", "Workload", "WorkloadOptions", "names", "resolve"]
