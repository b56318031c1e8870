"""The options that all examples share."""

import argparse
from typing import Any


class Arguments(argparse.Namespace):
    """What was given."""

    @property
    def times(self) -> dict[str, Any]:
        """Options of ``profile`` that decide how long it takes; its defaults where they weren't given."""
        given = {"warmup": self.warmup, "detail_time": self.detail_time, "max_time": self.max_time}
        return {name: value for name, value in given.items() if value is not None}


def parser(text: str | None) -> argparse.ArgumentParser:
    """A parser with the shared options."""
    found = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--device", default="auto", help="auto, cuda:N, cpu or sim:h100")
    found.add_argument("--mode", default="eager", choices=["eager", "graph"])
    found.add_argument("--batch", type=int)
    found.add_argument("--runs", type=int, default=1, help="repeats of the whole profile")
    found.add_argument("--output", help="write NAME.csv, NAME_top10_energy.csv and NAME.json")
    found.add_argument("--warmup", type=float, help="most seconds of warm-up")
    found.add_argument("--detail-time", type=float, help="most seconds of the experiments on parts")
    found.add_argument("--max-time", type=float, help="most seconds of the whole model's energy pass")
    return found


def parse(text: str | None) -> Arguments:
    """The shared options as they were given."""
    return parser(text).parse_args(namespace=Arguments())
