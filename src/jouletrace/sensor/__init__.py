"""What a reading of a power sensor means: when it was taken, and of which moments it is an average."""
