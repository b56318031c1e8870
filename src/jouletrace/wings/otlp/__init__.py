"""Energy and power to an OpenTelemetry collector: live by ``monitor --otlp URL``, of Runs by ``jouletrace otlp``."""

from jouletrace.wing import Wing

WING = Wing(
    commands={"otlp": "jouletrace.wings.otlp.command"},
    publishers={"otlp": "jouletrace.wings.otlp.sender"},
    libraries={"opentelemetry.exporter": "OpenTelemetry collectors (pip install 'jouletrace[otel]')"},
)
