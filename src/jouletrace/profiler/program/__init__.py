"""``run``: where the energy of any program goes, unchanged."""
