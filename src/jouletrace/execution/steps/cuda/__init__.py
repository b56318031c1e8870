"""Steps on an NVIDIA GPU: eager launches, captured graphs and their variants."""
