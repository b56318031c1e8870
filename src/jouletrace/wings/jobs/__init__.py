"""Energy, cost and CO2 of the jobs of a cluster, from power logs and a table of jobs: ``jouletrace jobs``."""

from jouletrace.wing import Wing

WING = Wing(commands={"jobs": "jouletrace.wings.jobs.command"})
