"""Words of codes, units of figures and text on its way out: what all that prints has in common, without any layout."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "scale": "NBSP cell figure unit_for",
    },
)
