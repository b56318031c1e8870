"""What ``nvidia-smi`` prints: ``dmon``, ``--query-gpu`` in CSV, and its table printed again and again."""
