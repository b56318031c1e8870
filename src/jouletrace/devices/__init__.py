"""What hardware is here and what it can tell. Each vendor is one module behind the ``Device`` protocol."""
