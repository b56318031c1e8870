"""What other programs read: one module a format, ``write(run, path)``."""
