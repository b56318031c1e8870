"""Simulated GPUs with known truth, and sensors that sample it. Shares no code with the packages that estimate."""
