"""``bench``: a load on a running server, its requests and the energy of its GPUs."""
