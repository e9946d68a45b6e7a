"""Questions in files: which records are asked, and for which answer."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from deltahist.errors import BYTES_PER_CELL, InputError, fits_memory
from deltahist.personal.asking import Records

#: Longest file that is read.
_LONGEST = 1 << 20
_KEYS = ("table", "owner", "place", "crs", "steps", "answer")
#: The names that each kind of answer needs, and those that it may have; all have a budget.
_ANSWERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "count": ((), ()),
    "sum": (("column", "clip"), ("resolution",)),
    "mean": (("column", "clip"), ("resolution",)),
    "quantile": (("column", "q", "clip"), ("resolution",)),
    "histogram": (("column", "values"), ()),
    "map": (("x", "bounds", "cell", "delta"), ("y", "crs", "project", "strategy", "sources", "limits")),
}
_BUDGETS = ("epsilon", "rho")


@dataclass(frozen=True)
class Question:
    """A question in writing: steps from a table's records to derived ones, and the answer about these.

    Parameters
    ----------
    steps : each a mapping of one step to its argument, such as {"where": "hour >= 22"}.
    answer : {"kind": "count", "epsilon": 0.1}, with the other arguments of that kind.
    table, owner, place, crs : of the records, if the file says so; crs of the columns of the place.

    Raises
    ------
    InputError
        On unknown steps, kinds of answers or names, on missing ones, and on not exactly one budget.

    >>> Question.of({"steps": [{"where": "kind = 'bus'"}], "answer": {"kind": "count", "epsilon": 0.1}}).kind
    'count'
    """

    steps: tuple[Mapping[str, Any], ...]
    answer: Mapping[str, Any]
    table: str | None = None
    owner: str | None = None
    place: tuple[str, ...] | None = None
    crs: str | None = None

    @classmethod
    def read(cls, path: str | Path) -> Question:
        """Read the question in a TOML file.

        Raises InputError if it is missing, too long, no TOML, or asks for something unknown.
        """
        path = Path(path)
        if not path.is_file():
            raise InputError(f"question {str(path)!r} does not exist")
        if path.stat().st_size > _LONGEST:
            raise InputError(f"question {str(path)!r} is of {path.stat().st_size:,} bytes: it is no question file")
        try:
            return cls.of(tomllib.loads(path.read_text(encoding="utf-8-sig")))
        except (ValueError, RecursionError) as problem:  # damaged, too deep, a number of too many digits
            raise InputError(f"question {str(path)!r} cannot be read as TOML: {problem}") from None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Question:
        """Return the question that a mapping describes, in the form of a file."""
        _known(given, _KEYS, "a question")
        steps, answer = given.get("steps", []), given.get("answer")
        if not isinstance(answer, dict):
            raise InputError(
                'answer is missing: a question ends with what is asked, answer = {kind = "count", epsilon = 0.1}'
            )
        if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
            raise InputError("steps must be a list of tables: [[steps]] before each of them")
        for step in steps:
            _check_step(step)
        _check_answer(answer)
        place = given.get("place")
        for name in ("table", "owner", "crs"):
            if not isinstance(given.get(name, ""), str):
                raise InputError(f"{name} is {given[name]!r}: it must be text")
        if place not in (None, []) and not _are_texts(place):
            raise InputError(f"place is {place!r}: it must be a list of columns")
        place = None if place is None else tuple(place)
        return cls(tuple(steps), answer, given.get("table"), given.get("owner"), place, given.get("crs"))

    @property
    def kind(self) -> str:
        """The kind of the answer."""
        return str(self.answer["kind"])

    def records(self, records: Records) -> Records:
        """Derive records from a table's records by the steps."""
        return _derive(records, self.steps)

    def ask(self, records: Records, key: str | None = None) -> Any:
        """Answer the question about the records of a table.

        Returns an `Answer`, `Answers`, a `QuantileAnswer`, or for a map a `Release`. Raises InputError as the methods
        of `Records` do.
        """
        taken = {name: value for name, value in self.answer.items() if name != "kind"}
        derived = self.records(records)
        if self.kind == "map":
            return _publish_map(derived, taken, key)
        if "clip" in taken:
            taken["clip"] = tuple(taken["clip"])
        return getattr(derived, self.kind)(**taken, key=key)


def _publish_map(records: Records, taken: dict[str, Any], key: str | None) -> Any:
    from deltahist.space.domain import Domain
    from deltahist.space.neighbourhood import Neighbourhood
    from deltahist.space.operations import read_crs

    bounds, cell = taken.pop("bounds"), taken.pop("cell")
    crs, project = taken.pop("crs", None), taken.pop("project", None)
    if project is None:
        if crs is not None and read_crs(crs).is_geographic:
            raise InputError(
                f"crs is {crs!r}: degrees are not lengths, so the points must be projected; add project = 'auto', with "
                "bounds in degrees, or project with a projected CRS such as 'EPSG:32618', and bounds in its metres"
            )
        domain, crs = Domain.from_cell(bounds, cell, crs), None
    elif crs is None:
        raise InputError(
            f"project is {project!r} without crs: say of which CRS the columns are, such as crs = \"EPSG:4326\""
        )
    elif project == "auto":
        domain = Domain.from_degrees(bounds, cell)
    else:
        domain = Domain.from_cell(bounds, cell, project)
    grid = " x ".join(f"{number:,}" for number in domain.shape)
    fits_memory(BYTES_PER_CELL * domain.size, f"a grid of {grid} cells", "use larger cells, or are the bounds swapped?")
    near = Neighbourhood(domain, *(taken.pop(name, None) for name in ("delta", "sources", "limits")))
    near.check_on_map()
    return records.publish(near, **taken, crs=crs, key=key)


def _derive(records: Records, steps: Any) -> Records:
    for step in steps:
        (name,) = step.keys() - {"by"}
        records = _STEPS[name].derive(records, step[name], step.get("by", []))
    return records


class _Step(NamedTuple):
    """A step of a question: how it derives records, which arguments it takes, and the rule in words."""

    derive: Callable[[Records, Any, Any], Records]
    fits: Callable[[Any], bool]
    rule: str


def _union(records: Records, given: Any, by: Any) -> Records:
    first, *others = (_derive(records, steps) for steps in given)
    for other in others:
        first = first.union(other)
    return first


_STEPS = {
    "where": _Step(
        lambda records, given, by: records.where(given),
        lambda given: isinstance(given, str),
        "text, such as \"hour >= 22 and kind = 'bus'\"",
    ),
    "select": _Step(
        lambda records, given, by: records.select(*given) if isinstance(given, list) else records.select(**given),
        lambda given: _are_texts(given) or (isinstance(given, dict) and _are_texts([*given.values()])),
        "a list of columns, or a table of names and texts",
    ),
    "flat_map": _Step(
        lambda records, given, by: records.flat_map(*given),
        lambda given: isinstance(given, list) and all(isinstance(each, dict) for each in given),
        "a list of tables of names and texts",
    ),
    "distinct": _Step(
        lambda records, given, by: records.distinct(*given), lambda given: _are_texts(given), "a list of columns"
    ),
    "at_most": _Step(
        lambda records, given, by: records.at_most(given, by=by), lambda given: type(given) is int, "a whole number"
    ),
    "union": _Step(
        _union,
        lambda given: isinstance(given, list) and len(given) > 1 and all(isinstance(each, list) for each in given),
        "two or more lists of steps",
    ),
}


def _check_step(step: Mapping[str, Any]) -> None:
    names = [name for name in step if not (name == "by" and "at_most" in step)]
    if len(names) != 1 or names[0] not in _STEPS:
        raise InputError(
            f"a step is {', '.join(step) or 'empty'}: it must be one of {', '.join(_STEPS)} (at_most may have by)"
        )
    (name,) = names
    if not _STEPS[name].fits(step[name]):
        raise InputError(f"{name} is {step[name]!r}: it must be {_STEPS[name].rule}")
    by = step.get("by", [])
    if by != [] and not isinstance(by, str) and not _are_texts(by):
        raise InputError(f"by is {by!r}: it must be a column, or a list of columns")
    for steps in step.get("union", []):
        for each in steps:
            _check_step(each)


def _check_answer(answer: Mapping[str, Any]) -> None:
    kind = answer.get("kind")
    if kind not in _ANSWERS:
        raise InputError(f"kind of the answer is {kind!r}: it must be one of {', '.join(_ANSWERS)}")
    needed, optional = _ANSWERS[kind]
    missing = [name for name in needed if name not in answer]
    if missing:
        raise InputError(f"{' and '.join(missing)} missing: an answer of kind {kind!r} takes {', '.join(needed)}")
    _known(answer, ("kind", *_BUDGETS, *needed, *optional), f"an answer of kind {kind!r}")
    for name, given in answer.items():
        if isinstance(given, bool):
            raise InputError(f"{name} is {str(given).lower()}: an answer takes numbers, text and lists of them")
    if sum(name in answer for name in _BUDGETS) != 1:
        raise InputError("an answer spends epsilon or rho, one of them: it must say how much")


def _known(given: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
    other = [name for name in given if name not in names]
    if other:
        raise InputError(f"{', '.join(other)} is not known in {what}: there are {', '.join(names)}")


def _are_texts(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(isinstance(each, str) for each in given)
