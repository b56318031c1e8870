"""Energy of a window of time from readings, by the sensor's response."""
