"""From the timeline of kernels and the readings of power to the power and energy of each kernel."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "activity": "Kind activity_of",
        "amounts": "attribute_amounts",
        "checks": "check_powers resolved trusted",
        "lock": "follow",
        "log_chain": "log_energies",
        "observer": "Sampled",
        "outcome": "ALIASED_LOG",
        "prior": "Prior",
        "program": "ProgramEnergies attribute_program",
        "short_spans": "short_span_energies",
        "solve": "Energies Unseen",
        "spans": "ALIASED_FROM span_energies",
    },
)
