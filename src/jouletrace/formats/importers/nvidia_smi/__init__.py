"""Output of ``nvidia-smi``: ``dmon``, ``--query-gpu`` in CSV, and repeated printings of its table."""
