"""The job of a scheduler in which a recording runs."""

from __future__ import annotations

import os

_VARIABLES = {
    "id": "SLURM_JOB_ID",
    "name": "SLURM_JOB_NAME",
    "user": "SLURM_JOB_USER",
    "hosts": "SLURM_JOB_NODELIST",
    "gpus": "SLURM_JOB_GPUS",
}


def scheduled_job() -> dict[str, str]:
    """The job by Slurm's environment: "scheduler", "id", "name", "user", "hosts", "gpus"; empty outside a job."""
    if not os.environ.get("SLURM_JOB_ID"):
        return {}
    values = {fact: os.environ.get(variable, "") for fact, variable in _VARIABLES.items()}
    return {"scheduler": "slurm", **{fact: value for fact, value in values.items() if value}}
