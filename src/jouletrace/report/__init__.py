"""What people read: one module a format, ``render(run, ...) -> str``."""
