"""``python -m jouletrace``."""

from jouletrace.cli.main import main

main()
