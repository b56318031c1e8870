"""Readings of power sensors: when each was taken, and of which moments it is an average."""

from jouletrace.public import public_names

__getattr__ = public_names(
    __name__,
    {
        "counter": "FLOOR gained record_over_counter sound_reads",
        "gain": "gain_of",
        "kinds": "HOPPER HOPPER_SENSOR KINDS calibrated readings_of response_of",
        "models": "SampleResponse Sensor",
        "power_record": "clean integrate most_power_w",
        "readout": "on_grid",
        "sampler": "SampleTimes read_out",
        "shares": "Response Timeline averaged",
        "stamps": "Grid find_grid published",
    },
)
