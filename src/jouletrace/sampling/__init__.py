"""Recording what devices tell, in a process of its own or in virtual time; calibration of their sensors."""
