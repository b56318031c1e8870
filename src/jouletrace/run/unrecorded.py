"""Launches whose work no recorder kept: one outcome for our tracer and for timelines of other tools."""

from __future__ import annotations

from typing import Final

RECORDS_DROPPED: Final = "records_dropped"
FEW_RECORDS_DROPPED: Final = "few_records_dropped"
RECORDS_CUT_OFF: Final = "records_cut_off"
"""Codes of the warning: many launches have no work, a few, and a few at the ends of the recording alone."""

FEW: Final = 0.05
"""Up to this share of launches is a few. Of 20 public timelines, the one that lost any lacks 0.6 %, at its end."""

WITHOUT_KERNEL: Final = "launches have no kernel"
WITHOUT_RECORD: Final = "copies and sets have no record"
"""Which launches lack their work, as messages say it."""


def without_work(lost: int, launches: int, text: str, why: str, *, at_ends: bool = False) -> tuple[str, str]:
    """Code and message of launches without their work.

    Args:
        lost: How many have none, above 0.
        launches: How many there are.
        text: ``WITHOUT_KERNEL``, or ``WITHOUT_RECORD``.
        why: The cause or the consequence, as the message ends.
        at_ends: True if all lie at the ends of the recording, where its window cuts off what ran later.
    """
    code = RECORDS_DROPPED
    if lost <= FEW * launches:
        code = RECORDS_CUT_OFF if at_ends else FEW_RECORDS_DROPPED
    return code, f"{lost} of {launches} {text}: {why}"
