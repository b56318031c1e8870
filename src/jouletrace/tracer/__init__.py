"""The native tracer: what any program runs on GPUs, and whose it is."""
