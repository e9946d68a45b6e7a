"""Questions in files: which records are asked, and for which answer."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltahist.errors import BYTES_PER_CELL, InputError, fits_memory
from deltahist.personal.asking import Records

#: Longest file that is read.
_LONGEST = 1 << 20
_BUDGETS = ("epsilon", "rho")
#: The names that each kind of answer needs, and those that it may have; all have a budget.
_ANSWERS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "count": ((), ()),
    "sum": (("column", "clip"), ("resolution",)),
    "mean": (("column", "clip"), ("resolution",)),
    "quantile": (("column", "q", "clip"), ("resolution",)),
    "histogram": (("column", "values"), ()),
    "map": (("x", "bounds", "cell", "delta"), ("y", "crs", "project", "strategy", "sources", "limits")),
}


@dataclass(frozen=True)
class Question:
    """A question in writing: steps from a table's records to derived ones, and the answer about these.

    A step is a mapping of its name to its argument, the answer one of its kind and the arguments of that kind. Table,
    owner, place, and CRS of the place's columns stand if the file says them.

    >>> Question.of({"steps": [{"where": "kind = 'bus'"}], "answer": {"kind": "count", "epsilon": 0.1}}).kind
    'count'
    """

    answer: Mapping[str, Any]
    steps: tuple[Mapping[str, Any], ...] = ()
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
        if not path.is_file() or path.stat().st_size > _LONGEST:
            raise InputError(f"question {str(path)!r} does not exist, or is of more than {_LONGEST:,} bytes")
        try:
            return cls.of(tomllib.loads(path.read_text(encoding="utf-8-sig")))
        except InputError:
            raise
        except (ValueError, RecursionError) as problem:  # damaged, too deep, a number of too many digits
            raise InputError(f"question {str(path)!r} cannot be read as TOML: {problem}") from None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Question:
        """Return the question that a mapping describes, in the form of a file."""
        _check_known(given, ("table", "owner", "place", "crs", "steps", "answer"), "a question")
        _check_steps(given.get("steps", []))
        _check_answer(given.get("answer"))
        for name in ("table", "owner", "crs"):
            _check(name, given.get(name, ""), isinstance(given.get(name, ""), str), "text")
        place = given.get("place")
        _check("place", place, place in (None, []) or _are_texts(place), "a list of columns")
        fixed = {"steps": tuple(given.get("steps", [])), "place": None if place is None else tuple(place)}
        return cls(**{**given, **fixed})

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
    """Derive records by steps that were checked."""
    for step in steps:
        (name,) = step.keys() - {"by"}
        given = step[name]
        if name == "union":
            first, *others = (_derive(records, part) for part in given)
            for other in others:
                first = first.union(other)
            records = first
        elif name == "at_most":
            records = records.at_most(given, by=step.get("by", []))
        elif isinstance(given, dict):
            records = records.select(**given)
        else:
            records = getattr(records, name)(*([given] if name == "where" else given))
    return records


def _are_texts(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(isinstance(each, str) for each in given)


#: Which arguments each step takes, and the same in words.
_STEPS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "where": (lambda given: isinstance(given, str), "text, such as \"hour >= 22 and kind = 'bus'\""),
    "select": (
        lambda given: _are_texts(given) or (isinstance(given, dict) and _are_texts([*given.values()])),
        "a list of columns, or a table of names and texts",
    ),
    "flat_map": (
        lambda given: isinstance(given, list) and all(isinstance(each, dict) for each in given),
        "a list of tables of names and texts",
    ),
    "distinct": (_are_texts, "a list of columns"),
    "at_most": (lambda given: type(given) is int, "a whole number"),
    "union": (
        lambda given: isinstance(given, list) and len(given) > 1 and all(isinstance(each, list) for each in given),
        "two or more lists of steps",
    ),
}


def _check_steps(steps: Any) -> None:
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise InputError("steps must be a list of tables: [[steps]] before each of them")
    for step in steps:
        names = [name for name in step if not (name == "by" and "at_most" in step)]
        if len(names) != 1 or names[0] not in _STEPS:
            raise InputError(
                f"a step is {', '.join(step) or 'empty'}: it must be one of {', '.join(_STEPS)} (at_most may have by)"
            )
        fits, rule = _STEPS[names[0]]
        _check(names[0], step[names[0]], fits(step[names[0]]), rule)
        by = step.get("by", [])
        _check("by", by, by == [] or isinstance(by, str) or _are_texts(by), "a column, or a list of columns")
        for part in step.get("union", []):
            _check_steps(part)


def _check_answer(answer: Any) -> None:
    if not isinstance(answer, dict):
        raise InputError(
            'answer is missing: a question ends with what is asked, answer = {kind = "count", epsilon = 0.1}'
        )
    kind: Any = answer.get("kind")
    _check("kind of the answer", kind, kind in list(_ANSWERS), f"one of {', '.join(_ANSWERS)}")
    needed, optional = _ANSWERS[kind]
    missing = [name for name in needed if name not in answer]
    if missing:
        raise InputError(f"{' and '.join(missing)} missing: an answer of kind {kind!r} takes {', '.join(needed)}")
    _check_known(answer, ("kind", *_BUDGETS, *needed, *optional), f"an answer of kind {kind!r}")
    for name, given in answer.items():
        _check(name, given, not isinstance(given, bool), "a number, text or a list of them")
    if sum(name in answer for name in _BUDGETS) != 1:
        raise InputError("an answer spends epsilon or rho, one of them: it must say how much")


def _check(name: str, given: Any, fits: bool, rule: str) -> None:
    if not fits:
        raise InputError(f"{name} is {given!r}: it must be {rule}")


def _check_known(given: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
    other = [name for name in given if name not in names]
    if other:
        raise InputError(f"{', '.join(other)} is not known in {what}: there are {', '.join(names)}")
