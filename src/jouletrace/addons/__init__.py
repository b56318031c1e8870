"""What some users need beside the core: fleets, MIG, other runtimes, other makers' tools. Nothing above imports it."""
