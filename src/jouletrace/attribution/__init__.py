"""From the timeline of kernels and the readings of power to the power and energy of each kernel."""
