"""How options are declared, and how their texts are read.

A group is a dataclass of options that several commands share; `spread` lets a command take groups as parameters.
Budgets are read exactly (`amount`), other values as the library takes them. The library checks values, and names its
parameter: the declarations are the one table from parameters to options, by which `spread` renames them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from deltahist.errors import InputError, shortened, typed

if TYPE_CHECKING:
    from deltahist.space.domain import Domain

#: No coordinate of any map is larger; beyond, floats cannot tell cells apart.
_FARTHEST = 1e12
#: Words between the parameters that an error is about.
_JOINING = ("and", "or", "both", "neither", "nor")
#: Parameters of strategies that are too long to be shown.
LONG = ("sets", "kernel", "matrix")


def option(
    metavar: str, text: str, *names: str, read: Callable[[str, str], Any] | None = None, panel: str | None = None
) -> Any:
    """Declare an option with a value.

    Parameters
    ----------
    metavar, text : the help.
    names : its names; by default that of the parameter.
    read : reads the text, from the text and the option's name; each text of an option that may be repeated.
    panel : heading of the help under which it stands; by default among the usual ones.
    """
    declared = typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel)
    declared.read, declared.names = read, names
    return declared


def flag(name: str, text: str, panel: str | None = None) -> Any:
    """Declare an option without a value."""
    declared = typer.Option(name, help=text, rich_help_panel=panel)
    declared.names = (name,)
    return declared


def argument(metavar: str, text: str) -> Any:
    """Declare a value that is given by its place."""
    return typer.Argument(metavar=metavar, help=text)


def spread(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give Typer every option of a command's groups by itself, and the command its groups.

    A parameter whose type is a dataclass is a group. Required options come first, as in any signature; otherwise all
    stand in the order of the parameters, and within a group in that of its fields. Groups that have an option of one
    name share it, as the first of them declares it.

    >>> @spread
    ... def allocate(*, weights: Path, power: Annotated[Fraction | None, option("A", "", read=amount)] = None) -> Any:
    ...     return power
    >>> allocate(weights=Path("demand.csv"), power="1/2")
    Fraction(1, 2)
    >>> allocate(weights=Path("demand.csv"), power="0")
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: --power is '0': it must be a finite number above zero
    """
    groups: dict[str, Any] = {}
    own: set[str] = set()
    flat = []
    for each in _parameters(command):
        if is_dataclass(each.annotation):
            groups[each.name] = each.annotation
            flat += _parameters(each.annotation)
        else:
            flat.append(each)
            own.add(each.name)
    shared: dict[str, inspect.Parameter] = {}
    for each in flat:
        shared.setdefault(each.name, each)
    names = {name: _option_of(each) for name, each in shared.items()}
    readers = {name: read for name, each in shared.items() if (read := _reader_of(each)) is not None}

    @wraps(command)
    def run(**given: Any) -> Any:
        with in_options(names):
            for name, read in readers.items():
                value = given.get(name)
                if isinstance(value, str):
                    given[name] = read(value, names[name])
                elif isinstance(value, list):
                    given[name] = [read(text, names[name]) for text in value]
            made = {
                name: group(**{field.name: given[field.name] for field in fields(group)})
                for name, group in groups.items()
            }
            return command(**{name: value for name, value in given.items() if name in own}, **made)

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        sorted(map(_as_typed, shared.values()), key=lambda each: each.default is not each.empty)
    )
    return run


def _parameters(taker: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function or of a dataclass, with types instead of their names."""
    kinds = get_type_hints(taker, include_extras=True)
    return [
        each.replace(annotation=kinds[each.name], kind=inspect.Parameter.KEYWORD_ONLY)
        for each in inspect.signature(taker).parameters.values()
    ]


def _declared(parameter: inspect.Parameter) -> Any:
    """Return the declaration of an option, or None."""
    return next(iter(getattr(parameter.annotation, "__metadata__", ())), None)


def _reader_of(parameter: inspect.Parameter) -> Any:
    return getattr(_declared(parameter), "read", None)


def _option_of(parameter: inspect.Parameter) -> str:
    """Return the name of an option as typed."""
    names = getattr(_declared(parameter), "names", ())
    return str(names[0]) if names else f"--{parameter.name.replace('_', '-')}"


def _as_typed(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter as Typer takes it: text, where a reader reads it."""
    if _reader_of(parameter) is None:
        return parameter
    kind, *_ = get_args(parameter.annotation)
    several = any(str(each).startswith("list") for each in (kind, *get_args(kind)))
    text: Any = list[str] if several else str
    if parameter.default is None:
        text = text | None
    return parameter.replace(annotation=Annotated[text, _declared(parameter)])


@contextmanager
def in_options(names: dict[str, str]) -> Iterator[None]:
    """Put errors of the library, which name parameters, into the words of the command line.

    >>> with in_options({"crs": "--crs", "drop_bad_rows": "--drop-bad-rows"}):
    ...     raise InputError("crs is missing: add crs='EPSG:4326', or leave rows out with drop_bad_rows=True")
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: --crs is missing: add --crs EPSG:4326, or leave rows out with --drop-bad-rows
    """
    try:
        yield
    except InputError as problem:
        import shlex

        words = str(problem).split(" ")
        start = next((i for i, word in enumerate(words) if word not in names and word not in _JOINING), 0)
        if words[start] in ("is", "are", "goes"):
            words[:start] = [names.get(word, word) for word in words[:start]]
        text = " ".join(words)
        for name, typed_as in names.items():
            text = text.replace(f" {name}=True", f" {typed_as}").replace(f" give {name} ", f" give {typed_as} ")
            for quote in "'", '"':
                text, *values = text.split(f" {name}={quote}")
                for each in values:
                    value, _, rest = each.partition(quote)
                    text += f" {typed_as} {shlex.quote(value)}{rest}"
            for end in " ,)":
                text = f"{text} ".replace(f" {name}={end}", f" {typed_as}{end}").rstrip(" ")
        problem.args = (text, *problem.args[1:])
        raise


def corners(text: str, option: str, *, around: bool = False) -> tuple[float, ...]:
    """Read corners with west < east and south < north, or low < high; west > east too if they may go `around`.

    >>> corners("-74.3,40.4,-73.6,41", "--bounds")
    (-74.3, 40.4, -73.6, 41.0)
    """
    given = f"{option} is {text!r}"
    rule = "it must be four numbers W,S,E,N, or two in one dimension, separated by commas"
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"{given}: {rule}") from None
    if len(values) not in (2, 4):
        raise InputError(f"{given}, that is {len(values)} numbers: {rule}")
    if not all(map(math.isfinite, values)):
        raise InputError(f"{given}: all its numbers must be finite, none NaN or infinite")
    if max(map(abs, values)) > _FARTHEST:
        raise InputError(f"{given}: its numbers must not be beyond {_FARTHEST:g} (a slip in a digit?)")
    names = ("west", "south", "east", "north") if len(values) == 4 else ("low", "high")
    half = len(values) // 2
    for one, low, other, high in zip(names, values, names[half:], values[half:], strict=False):
        if not low < high and not (around and one == "west"):
            rule = f"{one} {low:g} must be less than {other} {high:g} (the order is {', '.join(names)})"
            if option == "--bounds" and one == "west" and max(map(abs, values)) <= 180:
                rule += "; degrees that go across the antimeridian take --project auto"
            raise InputError(f"{given}: {rule}")
    return values


def amount(text: str, option: str) -> Fraction:
    """Read a number above zero as the exact fraction that its decimals (or a/b) say.

    >>> amount("0.1", "--epsilon")
    Fraction(1, 10)
    """
    number = typed(text)
    if number is None or number <= 0:
        raise InputError(f"{option} is {shortened(text)}: it must be a finite number above zero")
    return number


def decimal(text: str, option: str) -> float:
    """Read a number; its range is checked by the library, which names it.

    >>> decimal("0.95", "--level")
    0.95
    """
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} is {shortened(text)}: it must be a number") from None


def whole_number(text: str, option: str) -> int:
    """Read a whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise InputError(f"{option} is {shortened(text)}: it must be a whole number of at least 1")
    return value


def length(text: str, option: str) -> float | str:
    """Read a length as the library takes it: a number, or text with its unit, which the library checks."""
    try:
        return float(text)
    except ValueError:
        return text.strip()


def listed(read: Callable[[str, str], Any]) -> Callable[[str, str], list[Any]]:
    """Return a reader of values that are separated by commas.

    >>> listed(amount)("0.5,1", "--epsilons")
    [Fraction(1, 2), Fraction(1, 1)]
    """
    return lambda text, option: [read(part, option) for part in text.split(",")]


def has_distance(text: str) -> bool:
    """Return whether a --limit is about the cost of moves, and not about what an account may spend."""
    return typed(text) is None and text.strip().lower() not in ("nan", "inf", "-inf")


def of_moves(texts: Sequence[str] | None) -> list[str]:
    """Select the limits of moves among several --limit."""
    return [text for text in texts or () if has_distance(text)]


def limits(texts: Sequence[str] | None, option: str) -> list[Any] | None:
    """Read limits of moves beyond δ as a neighbourhood takes them; None if there are none.

    >>> limits(["2km:2", "any:4"], "--limit"), limits(["any:none"], "--limit")
    ([('2km', Fraction(2, 1)), ('any', Fraction(4, 1))], [])
    """
    from deltahist.space.profile import ANY, PROPORTIONAL

    if not texts:
        return None
    out: list[Any] = []
    for text in texts:
        distance, _, factor = (part.strip() for part in text.rpartition(":"))
        if text.strip() == PROPORTIONAL:
            out.append(PROPORTIONAL)
        elif not distance or factor != "none":
            rule = (
                "a distance and how many times ε a move over it costs at most, such as 2km:2 or any:4; any:none, or "
                "proportional"
            )
            out.append(_limit(text, option, rule, length))
        elif distance != ANY:
            raise InputError(
                f"{option} is {text!r}: without a limit are all moves, any:none, or those beyond the longest limit"
            )
        elif any(given != text for given in texts if given.strip().startswith(f"{ANY}:")):
            raise InputError(f"{option} is {text!r} with another limit for any move: leave one of them out")
    return out


def window_limit(text: str, option: str) -> tuple[Any, Fraction]:
    """Read a limit for data that differ in more steps than a window.

    >>> window_limit("30:2", "--window-limit"), window_limit("any:4", "--window-limit")
    ((30, Fraction(2, 1)), ('any', Fraction(4, 1)))
    """
    rule = "a number of steps and how many times the budget so many in a row spend at most, such as 30:2; or any:4"
    return _limit(text, option, rule, whole_number)


def _limit(
    text: str, option: str, rule: str, read: Callable[[str, str], float | str]
) -> tuple[float | str, Fraction]:
    """Read a limit, in space or in time: how far it holds, as `read` reads it, or "any"; and times the budget."""
    from deltahist.space.profile import ANY

    distance, _, factor = (part.strip() for part in text.rpartition(":"))
    if not distance or not factor:
        raise InputError(f"{option} is {text!r}: it must be {rule}")
    times = amount(factor, f"{option} {text!r}: the factor")
    if times < 1:
        raise InputError(
            f"{option} is {text!r}: the factor must be at least 1, since what is shorter costs up to the budget (take "
            "a smaller budget for less)"
        )
    return (distance if distance == ANY else read(distance, f"{option} {text!r}: the number of steps")), times


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
