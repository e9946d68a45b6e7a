"""Options: how they are declared, how their texts are read, and their names in errors.

An option is the default value of a command's parameter, or of a field of a group: a dataclass of options that several
commands share. `spread` hands all of them to Typer, and renames parameters in the library's errors by the same table.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, field, fields, is_dataclass
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from deltahist._objects import is_address
from deltahist.errors import InputError, typed

if TYPE_CHECKING:
    from deltahist.space.domain import Domain

#: No coordinate of any map is larger; beyond, floats cannot tell cells apart.
_FARTHEST = 1e12
#: Parameters of strategies that are too long to be shown.
LONG = ("sets", "kernel", "matrix")


def option(
    metavar: str,
    text: str,
    read: Callable[[str, str], Any] | None = None,
    *,
    default: Any = None,
    names: str = "",
    panel: str | None = None,
    several: bool = False,
) -> Any:
    """Declare an option with a value.

    Parameters
    ----------
    metavar, text : the help.
    read : reads the text, from the text and the option's name; Typer reads it by the parameter's type when None.
    default : `...` for an option that must be given.
    names : its names, separated by spaces; by default that of the parameter.
    panel : heading of the help under which it stands; by default among the usual ones.
    several : whether it may be repeated; `read` reads each text.
    """
    how = {"metavar": metavar, "help": text, "rich_help_panel": panel, "show_envvar": False}
    about = {"make": typer.Option, "how": how, "read": read, "names": names.split(), "several": several}
    return field(default=MISSING if default is ... else default, metadata=about)


def flag(text: str, *, names: str = "", panel: str | None = None) -> Any:
    """Declare an option without a value."""
    how = {"help": text, "rich_help_panel": panel, "show_envvar": False}
    return field(default=False, metadata={"make": typer.Option, "how": how, "names": names.split()})


def argument(
    metavar: str, text: str, read: Callable[[str, str], Any] | None = None, *, default: Any = ...
) -> Any:
    """Declare a value that is given by its place; `read` as of `option`."""
    how = {"metavar": metavar, "help": text}
    about = {"make": typer.Argument, "how": how, "read": read, "several": False, "names": None}
    return field(default=MISSING if default is ... else default, metadata=about)



def spread(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give Typer every option of a command's groups by itself, and the command its groups.

    Required options come first; otherwise all stand in the order of the parameters, and within a group in that of its
    fields. Groups that have an option of one name share it, as the first of them declares it. `-o` is `--out`.

    >>> @spread
    ... def allocate(*, weights: Path = argument("FILE", ""), power: Fraction | None = option("A", "", amount)) -> Any:
    ...     return power
    >>> allocate(weights=Path("demand.csv"), power="1/2")
    Fraction(1, 2)
    >>> allocate(weights=Path("demand.csv"), power="0")
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: --power is '0': it must be a finite number above zero
    """
    types = get_type_hints(command)
    own = {name: each.default for name, each in inspect.signature(command).parameters.items()}
    groups = {name: types[name] for name in own if is_dataclass(types[name])}
    declared: dict[str, tuple[Any, Any]] = {}
    for name, default in own.items():
        if name in groups:
            hints = get_type_hints(groups[name])
            for each in fields(groups[name]):
                declared.setdefault(each.name, (hints[each.name], each))
        else:
            declared.setdefault(name, (types[name], default))
    names = {name: _typed_name(name, each) for name, (_, each) in declared.items() if isinstance(each, Field)}
    readers = {name: each.metadata.get("read") for name, (_, each) in declared.items() if isinstance(each, Field)}

    @wraps(command)
    def run(**texts: Any) -> Any:
        given = {name: _read(readers.get(name), value, names.get(name, "")) for name, value in texts.items()}
        with in_options(names, texts):
            made = {
                name: group(**{each.name: given[each.name] for each in fields(group)}) for name, group in groups.items()
            }
            return command(**made, **{name: given[name] for name in own if name not in groups and name in given})

    parameters = [_parameter(name, *each) for name, each in declared.items()]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        sorted(parameters, key=lambda each: each.default is not each.empty)
    )
    return run


def _typed_name(name: str, declared: Field[Any]) -> str:
    """Return the typed name of an option."""
    return next(iter(declared.metadata["names"] or ()), f"--{name.replace('_', '-')}")


def _read(read: Callable[[str, str], Any] | None, value: Any, name: str) -> Any:
    if read is None or not isinstance(value, str | list):
        return value
    return read(value, name) if isinstance(value, str) else [read(text, name) for text in value] or None


def _parameter(name: str, kind: Any, declared: Any) -> inspect.Parameter:
    """Return a parameter as Typer takes it: text, where a reader reads it."""
    if not isinstance(declared, Field):  # Typer's own context
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind)
    about = declared.metadata
    default = inspect.Parameter.empty if declared.default is MISSING else declared.default
    if about.get("read"):
        text: Any = list[str] if about["several"] else str
        kind = text | None if default is None else text
    names = () if about["names"] is None else about["names"] or (_typed_name(name, declared), *["-o"] * (name == "out"))
    made = about["make"](*names, **about["how"])
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, made]
    )


@contextmanager
def in_options(names: Mapping[str, str], texts: Mapping[str, Any]) -> Iterator[None]:
    """Put errors of the library, which name parameters, into the words of the command line.

    >>> with in_options({"crs": "--crs", "x": "--x", "drop_bad_rows": "--drop-bad-rows"}, {"x": "lon"}):
    ...     raise InputError("crs is missing: add crs='EPSG:4326', or leave rows out with drop_bad_rows=True")
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: --crs is missing: add --crs EPSG:4326, or leave rows out with --drop-bad-rows
    """
    try:
        yield
    except InputError as problem:
        problem.args = (_rename(str(problem), names, texts), *problem.args[1:])
        raise


def _rename(text: str, names: Mapping[str, str], texts: Mapping[str, Any]) -> str:
    """Return a message with options for parameters, and values as they were typed."""
    known = "|".join(names)
    if start := re.match(rf"(?:(?:{known}|and|or|both|neither|nor) )+(?=(?:is|are|goes) )", text):
        text = re.sub(rf"\b(?:{known})\b", lambda found: names[found[0]], start[0]) + text[start.end() :]
    if number := re.match(r"(--[\w-]+) is ([-+.\d][-+.\de]*)(?=[ ,:])", text):
        given = next((texts.get(name) for name, option in names.items() if option == number[1]), None)
        if isinstance(given, str) and typed(given) is not None and typed(given) == typed(number[2]):
            text = f"{number[1]} is {given}{text[number.end() :]}"
    if culprit := re.match(r"(output|column) '?([^']*?)'? is (?=not in )|(output) is '([^']*)'", text):
        value = culprit[2] or culprit[4]
        for name, given in sorted(texts.items(), key=lambda each: culprit[3] is not None and each[0] != "out"):
            if str(given) == value:  # the library does not know which option has the column, or the file
                return f"{names[name]} is {value!r}{': ' + text if culprit[2] else text[culprit.end() :]}"

    def with_value(found: re.Match[str]) -> str:
        _, name, single, double = found.groups()
        value = single or double
        return names[name] + (f" {shlex.quote(value)}" if value else "")

    text = re.sub(rf"(?<= )(({known})=)(?:True|'([^']*)'|\"([^\"]*)\"|(?=[ ,)]|$))", with_value, text)
    return re.sub(rf"(?<= give )(?:{known})(?= )", lambda found: names[found[0]], text)


# --- readers ------------------------------------------------------------------------------------------------


def place_of_release(text: str, option: str) -> Path | str:
    """Read the place of a release: a file or folder; or an address at a service or in storage, which stays text.

    >>> place_of_release("city.parquet", "RELEASE"), place_of_release("http://127.0.0.1/releases/city", "RELEASE")
    (PosixPath('city.parquet'), 'http://127.0.0.1/releases/city')
    """
    return text if is_address(text) else Path(text)


def corners(text: str, option: str) -> tuple[float, ...]:
    """Read the corners of a box, or the ends of an interval; the library checks their order.

    >>> corners("-74.3,40.4,-73.6,41", "--bounds")
    (-74.3, 40.4, -73.6, 41.0)
    """
    try:
        values = tuple(map(float, text.split(",")))
    except ValueError:
        values = ()
    if len(values) not in (2, 4) or not all(abs(value) <= _FARTHEST for value in values):
        hint = " (decimals stand behind a point, not a comma)" if len(values) == 8 else ""
        raise InputError(
            f"{option} is {text!r}: it must be four numbers W,S,E,N, or two in one dimension, separated by "
            f"commas, finite and none beyond {_FARTHEST:g}{hint}"
        )
    return values


def amount(text: str, option: str) -> Fraction:
    """Read a number above zero as the exact fraction that its decimals (or a/b) say.

    >>> amount("0.1", "--epsilon")
    Fraction(1, 10)
    """
    number = typed(text)
    if number is None or number <= 0:
        hint = " (decimals stand behind a point, not a comma)" if "," in text else ""
        raise InputError(f"{option} is {text!r}: it must be a finite number above zero{hint}")
    return number


def decimal(text: str, option: str) -> float:
    """Read a number; its range is checked by the library, which names it."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} is {text!r}: it must be a number") from None


def whole_number(text: str, option: str) -> int:
    """Read a whole number of at least 1."""
    value = typed(text)
    if value is None or value < 1 or value.denominator > 1:
        raise InputError(f"{option} is {text!r}: it must be a whole number of at least 1")
    return int(value)


def length(text: str, option: str) -> float | str:
    """Read a length as the library takes it: a number, or text with its unit; or a word such as auto."""
    from deltahist.space.domain import read_length

    said = text.strip()
    if said[:1].isdigit():
        read_length(said, option)
    try:
        return float(said)
    except ValueError:
        return said


def listed(read: Callable[[str, str], Any]) -> Callable[[str, str], list[Any]]:
    """Return a reader of values that are separated by commas.

    >>> listed(amount)("0.5,1", "--epsilons")
    [Fraction(1, 2), Fraction(1, 1)]
    """
    return lambda text, option: [read(part, option) for part in text.split(",")]


def move_limit(text: str, option: str) -> Any:
    """Read a limit of moves beyond δ: a pair as a neighbourhood takes it, "proportional", or any:none.

    >>> move_limit("2km:2", "--limit"), move_limit("any:none", "--limit")
    (('2km', Fraction(2, 1)), ('any', None))
    """
    if text.strip() == "proportional":
        return text.strip()
    rule = (
        "a distance and how many times ε a move over it costs at most, such as 2km:2 or any:4; any:none, or "
        "proportional"
    )
    if text.strip() == "any:none":
        return "any", None
    return _limit(text, option, rule, length, "the distance of a limit")


def move_limit_or_amount(text: str, option: str) -> Any:
    """Read a limit of moves, or a number: the limit of an account."""
    number = typed(text) is not None or text.strip().lower() in ("nan", "inf", "-inf")
    return (amount if number else move_limit)(text, option)


def window_limit(text: str, option: str) -> tuple[Any, Fraction]:
    """Read a limit for data that differ in more steps than a window.

    >>> window_limit("30:2", "--window-limit"), window_limit("any:4", "--window-limit")
    ((30, Fraction(2, 1)), ('any', Fraction(4, 1)))
    """
    rule = "a number of steps and how many times the budget so many in a row spend at most, such as 30:2; or any:4"
    return _limit(text, option, rule, whole_number, "the number of steps")


def _limit(text: str, option: str, rule: str, read: Callable[[str, str], Any], far: str) -> tuple[Any, Fraction]:
    """Read a limit, in space or in time: how far it holds, as `read` reads it, or "any"; and times the budget."""
    distance, _, factor = (part.strip() for part in text.rpartition(":"))
    if not distance or not factor:
        raise InputError(f"{option} is {text!r}: it must be {rule}")
    times = amount(factor, f"{option} {text!r}: the factor")
    if times < 1:
        raise InputError(f"{option} is {text!r}: the factor must be at least 1 (take a smaller budget for less)")
    return (distance if distance == "any" else read(distance, f"{option} {text!r}: {far}")), times


def read_boxes(
    box: Sequence[tuple[float, ...]] | None, file: Path | None, domain: Domain
) -> tuple[Any, list[str]]:
    """Return boxes of options and of a file as (m, 2 d) array, and the name of each."""
    import numpy as np

    from deltahist.space.geometries import read_box_file

    wanted = 2 * domain.ndim
    names = [",".join(f"{v:.15g}" for v in values) for values in box or ()]
    for values, name in zip(box or (), names, strict=True):
        if len(values) != wanted:
            raise InputError(f"--box is {name}: the map has {domain.ndim} dimension(s), it must be {wanted} numbers")
    array = np.array(box or [], dtype=np.float64).reshape(-1, wanted)
    if file is None:
        return array, names
    more, labels = read_box_file(file, wanted, "--boxes")
    return np.concatenate([array, more]), names + labels
