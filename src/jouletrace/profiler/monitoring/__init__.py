"""``monitor``: recording of GPUs while a program runs, and joules per unit of real work."""
