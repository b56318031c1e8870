"""The command line of benchmarks that make one text."""

import argparse
from collections.abc import Callable
from pathlib import Path


def print_text(description: str | None, make: Callable[[], str]) -> None:
    """Print what ``make`` returns, and write it to the file that ``-o`` names."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, help="write the text here too")
    arguments = parser.parse_args()
    text = make()
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")
