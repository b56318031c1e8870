"""Programs that aren't ours to run: their own loops, on a record that runs beside them, on one GPU or many."""
