"""One job on many GPUs and hosts, and the differences between them."""
