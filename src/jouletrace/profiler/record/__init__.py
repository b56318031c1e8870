"""Recording of user programs with their own loops, on one GPU or several."""
