"""The response of a sensor, fitted to pulses of known times."""
