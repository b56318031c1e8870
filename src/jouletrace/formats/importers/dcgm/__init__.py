"""Logs of DCGM: scrapes of dcgm-exporter (Prometheus text), and its fields as CSV."""
