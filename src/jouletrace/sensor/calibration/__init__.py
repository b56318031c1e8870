"""The response of a sensor, fitted to pulses of known times."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "fit": "edge_misfit fit_response gain_swings",
        "fitter": "Fitter load_features",
        "response": "StepResponse",
    },
)
