"""Runtimes other than torch: models exported for them, and the steps that run them."""
