"""A server under load: its requests, its steady state, energy by request and token."""
