"""Options that several commands share."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.models import ArgumentInfo

from jouletrace.errors import BadInputError
from jouletrace.option import flag_of, number
from jouletrace.profiler.settings import DEVICE_HELP
from jouletrace.wing import modules

if TYPE_CHECKING:
    from jouletrace.report.tariffs import Tariff

Value = TypeVar("Value", int, float, str)

Device = Annotated[str, typer.Option("--device", "-d", help=DEVICE_HELP)]
Json = Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")]
Format = Annotated[str, typer.Option("--format", "-f", help="table, json, csv, markdown or latex.")]
Top = Annotated[int | None, typer.Option("--top", min=1, help="Only the N rows with the most energy.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print all figures, sensors, conditions and checks below the verdict.")
]
Absolute = Annotated[bool, typer.Option("--absolute", help="Gain and offset of the sensor in intervals.")]
Price = Annotated[
    str | None,
    typer.Option(
        "--price",
        envvar="JOULETRACE_PRICE",
        metavar="PRICE",
        help="Price of a kWh, such as 0.30EUR/kWh: adds the cost.",
    ),
]
Carbon = Annotated[
    str | None,
    typer.Option(
        envvar="JOULETRACE_CARBON",
        metavar="MASS",
        help="CO2 equivalent of a kWh, such as 400g/kWh: adds the emissions.",
    ),
]
KeptPrice = Annotated[
    str | None,
    typer.Option(
        "--price",
        metavar="PRICE",
        help="Price of a kWh, such as 0.30EUR/kWh; a new Run keeps it. [default: the Run's, or JOULETRACE_PRICE]",
    ),
]
KeptCarbon = Annotated[
    str | None,
    typer.Option(
        "--carbon",
        metavar="MASS",
        help="CO2 equivalent of a kWh, such as 400g/kWh; likewise. [default: the Run's, or JOULETRACE_CARBON]",
    ),
]
NoContext = Annotated[bool, typer.Option("--no-context", help="State no arguments of the program, and no commit.")]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="WHAT=COLUMN", help="Meaning of a column of a table. Repeatable."),
]
Advice = Annotated[
    str, typer.Option("--advice", metavar="WORD", help="What could save energy: brief (at most 3 lines) or none.")
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Place of the Run: a folder, or a .zip. [default: under runs/]")
]

Campaign = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Folder; one with this campaign is resumed. [default: under runs/]"),
]
On = Annotated[
    str | None,
    typer.Option(metavar="ENGINE", help="Measure on the GPUs of a cluster: ray. [default: this host's]"),
]
PointLimit = Annotated[float, typer.Option(metavar="SECONDS", help="A run that takes longer is ended as timed out.")]


def from_settings(kind: type, *names: str, **defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: builds the command's ``settings``, a dataclass, from one option per field.

    Args:
        kind: A dataclass whose fields are ``option.option``.
        *names: The fields that the command offers; none for all shown fields.
        **defaults: Defaults that differ from those of the dataclass.
    """
    chosen = [field for field in fields(kind) if (field.name in names if names else field.metadata["shown"])]
    return lambda command: _with_options(command, "settings", chosen, lambda values: kind(**values), defaults)


def from_targets(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: builds ``requests``, values by name, from the options of the targets of wings (``Wing.targets``)."""
    chosen: dict[str, Field[Any]] = {}
    for module in modules("targets").values():
        for field in fields(module.RequestOptions):
            chosen.setdefault(field.name, field)
    return _with_options(command, "requests", list(chosen.values()), dict, {}, last=True)


def _with_options(
    command: Callable[..., None],
    into: str,
    chosen: Sequence[Field[Any]],
    made: Callable[[dict[str, Any]], Any],
    defaults: Mapping[str, Any],
    *,
    last: bool = False,
) -> Callable[..., None]:
    """The command with an option for each chosen field; what is ``made`` of their values is its parameter ``into``.

    They stand before its own, or ``last``.
    """
    written = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [parameter for parameter in written if parameter.name != into]
    arguments = [parameter for parameter in parameters if isinstance(_typer_info(parameter), ArgumentInfo)]
    options = [_parameter(field, defaults.get(field.name, MISSING)) for field in chosen]
    others = [parameter for parameter in parameters if parameter not in arguments]
    shown = [*arguments, *(() if last else options), *others, *(options if last else ())]
    shown = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]

    usual = {parameter.name: parameter.default for parameter in options}

    def run_command(*args: Any, **given: Any) -> None:
        given |= {parameter.name: value for parameter, value in zip(arguments, args, strict=False)}
        values = {field.name: _value(field, given.pop(_named(field), usual[_named(field)])) for field in chosen}
        command(**{into: made(values)}, **given)

    run_command.__name__, run_command.__doc__ = command.__name__, command.__doc__
    run_command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run_command.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run_command


def _typer_info(parameter: inspect.Parameter) -> object:
    """Typer's description of a parameter; None of one that another decorator builds."""
    return next(iter(getattr(parameter.annotation, "__metadata__", ())), None)


def all_but(kind: type, *names: str) -> list[str]:
    """Names of all shown fields of a dataclass but some: what a campaign takes of the options of its points."""
    return [setting.name for setting in fields(kind) if setting.metadata["shown"] and setting.name not in names]


def _named(setting: Field[Any]) -> str:
    """Name of a field on the command line, without the unit."""
    return setting.name.removesuffix("_s")


def _parameter(setting: Field[Any], default: Any) -> inspect.Parameter:
    """The parameter of a field for typer."""
    how = setting.metadata
    if default is MISSING:
        default = setting.default if setting.default is not MISSING else None
    stated = getattr(setting.type, "__name__", None) or str(setting.type)  # a class, or its text
    kind = {"str": str, "int": int, "float": float, "bool": bool}.get(stated.removesuffix(" | None"))
    flags = how["flags"] or (flag_of(setting),)
    annotation: Any = kind if not stated.endswith(" | None") else kind | None  # type: ignore[operator]
    if how["percent"]:
        annotation, default = str, f"{100 * default:g}%"
    if how["pairs"]:
        annotation = list[str] | None
    shown = typer.Option(*flags, help=how["help"], metavar=how["metavar"])
    return inspect.Parameter(
        _named(setting), inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, shown]
    )


def _value(setting: Field[Any], given: Any) -> Any:
    """The value of a field from its text on the command line."""
    name = flag_of(setting)
    if setting.metadata["percent"]:
        return parse_percent(given, name)
    return parse_pairs(given or [], name) if setting.metadata["pairs"] else given


def tariff(price: str | None, carbon: str | None) -> Tariff:
    """What ``KeptPrice`` and ``KeptCarbon`` state, with what the environment does. Call it before anything is measured.

    Raises:
        BadInputError: If one of them can't be read.
    """
    from jouletrace.report import tariffs

    names = ("JOULETRACE_PRICE", "JOULETRACE_CARBON")
    usual_price, usual_carbon = (os.environ.get(name) or None for name in names)
    usual = tariffs.tariff(usual_price, usual_carbon, names)
    return replace(tariffs.tariff(price, carbon) or tariffs.Tariff(), usual=usual)


def is_advised(word: str) -> bool:
    """True if ``--advice`` asks for some. Call it before anything is measured.

    Raises:
        BadInputError: If it is neither "brief" nor "none".
    """
    if word not in ("brief", "none"):
        raise BadInputError(f"--advice {word}: brief or none")
    return word == "brief"


def check_before_program(command: str, device: list[str] | None, program: Sequence[str] | None) -> None:
    """Refuse a simulated GPU among the arguments of a program that isn't jouletrace, where no device is named before.

    Raises:
        BadInputError: Which says where ``--device`` belongs.
    """
    words = list(program or ())
    if device or any(Path(word).name == "jouletrace" for word in words):
        return
    for flag, name in zip(words, [*words[1:], ""], strict=True):
        option, _, value = flag.partition("=")
        value = value or name
        if option in ("--device", "-d") and value.startswith("sim:"):
            raise BadInputError(
                f"--device comes before the program: jouletrace {command} --device '{value}' {words[0]} …"
            )


def parse_percent(text: str, option: str) -> float:
    """A fraction: "1%" and "0.01" give 0.01.

    Raises:
        BadInputError: If it is neither.
    """
    try:
        return number(text.removesuffix("%")) / 100 if text.endswith("%") else number(text)
    except ValueError:
        raise BadInputError(f"{option} {text!r}: write a percentage such as 1%") from None


def parse_pairs(pairs: list[str], option: str) -> dict[str, str]:
    """``["a=1", "b=2"]`` as a dictionary.

    Raises:
        BadInputError: If one has no "=", or two have the same key.
    """
    by_key: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise BadInputError(f"{option} {pair!r}: write KEY=VALUE")
        if by_key.setdefault(key, value) != value:
            raise BadInputError(f"{option} gives {key!r} two values, {by_key[key]!r} and {value!r}: give one")
    return by_key


def parse_duration(text: str, option: str) -> float:
    """Seconds of a duration: "300s", "5min", "1h".

    Raises:
        BadInputError: If it is none.
    """
    for unit, factor in (("min", 60.0), ("h", 3600.0), ("s", 1.0)):
        if text.strip().endswith(unit):
            with suppress(ValueError):
                seconds = number(text.strip().removesuffix(unit)) * factor
                if 0 < seconds < math.inf:
                    return seconds
            break
    raise BadInputError(f"{option} {text!r}: write a time such as 5min or 300s")


def parse_values(text: str | None, option: str, kind: Callable[[str], Value]) -> tuple[Value, ...]:
    """Values separated by commas.

    Raises:
        BadInputError: If one isn't of its kind.
    """
    if text is None:
        return ()
    values = []
    for part in text.split(","):
        try:
            values.append(kind(part.strip()))
        except ValueError:
            raise BadInputError(f"{option} {text!r}: {part.strip()!r} is not a number; write 1,8,64") from None
        if not part.strip():
            raise BadInputError(f"{option} {text!r}: a value is missing between commas")
    return tuple(values)
