"""Features outside the core: fleets, MIG, other runtimes, other vendors' tools. Only ``cli`` imports them."""
