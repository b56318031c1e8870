"""The orchestration behind ``profile``, ``measure``, ``monitor``, ``calibrate`` and ``doctor``."""
