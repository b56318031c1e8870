"""The same job on many GPUs and hosts, and how much they differ."""
