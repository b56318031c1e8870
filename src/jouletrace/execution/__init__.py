"""How a workload runs under the tracer: its operator calls, repetition in place, and the assignment of kernels."""
