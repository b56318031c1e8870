"""How a workload runs under the tracer: its operator calls, repetition in place, and whose each kernel is."""
