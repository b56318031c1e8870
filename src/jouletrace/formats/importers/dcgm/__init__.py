"""Logs of DCGM: scrapes of dcgm-exporter (Prometheus text), ``dcgmi dmon``, and its fields as CSV."""
