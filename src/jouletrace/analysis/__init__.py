"""From the raw tables of a Run to its figures: pure, and the same for every origin of a Run."""
