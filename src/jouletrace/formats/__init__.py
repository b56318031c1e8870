"""Files of other tools, read into Runs; Runs, written for other tools."""
