"""What ran when: kernel records, and their names, from the CUDA profiling interface."""
