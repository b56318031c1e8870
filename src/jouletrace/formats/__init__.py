"""What other tools wrote, read into Runs; Runs, written for other tools."""
