"""Questions in files: which records, and what is answered about them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltahist.errors import BYTES_PER_CELL, InputError, fits_memory
from deltahist.personal.records import Records

#: Longest file that is read.
_LONGEST = 1 << 20
_KEYS = ("table", "owner", "place", "crs", "steps", "answer")
#: What each kind of answer takes, and what it needs. Budgets may be given to all.
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
    """A question as it is written down: steps from a table's records to derived ones, and what is asked about these.

    Parameters
    ----------
    steps : each a mapping of one step to what it takes, such as {"where": "hour >= 22"}.
    answer : {"kind": "count", "epsilon": 0.1}, with what that kind takes besides.
    table, owner, place, crs : of the records, if the file says so; crs of the columns of the place.

    Raises
    ------
    InputError
        On unknown steps, kinds of answers or names, on what is missing, and on not exactly one budget.

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
        """The question in a TOML file.

        Raises InputError if it is missing, too long, no TOML, or asks for what there is not.
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
    def of(cls, said: Mapping[str, Any]) -> Question:
        """The question that a mapping says, as a file does."""
        _known(said, _KEYS, "a question")
        steps, answer = said.get("steps", []), said.get("answer")
        if not isinstance(answer, dict):
            raise InputError(
                'answer is missing: a question ends with what is asked, answer = {kind = "count", epsilon = 0.1}'
            )
        if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
            raise InputError("steps must be a list of tables: [[steps]] before each of them")
        for step in steps:
            _checked_step(step)
        _check_answer(answer)
        place = said.get("place")
        for name in ("table", "owner", "crs"):
            if not isinstance(said.get(name, ""), str):
                raise InputError(f"{name} is {said[name]!r}: it must be text")
        if place not in (None, []) and not _are_texts(place):
            raise InputError(f"place is {place!r}: it must be a list of columns")
        place = None if place is None else tuple(place)
        return cls(tuple(steps), answer, said.get("table"), said.get("owner"), place, said.get("crs"))

    @property
    def kind(self) -> str:
        """What kind of answer is asked for."""
        return str(self.answer["kind"])

    def records(self, records: Records) -> Records:
        """The records that the steps derive from those of a table."""
        return _derive(records, self.steps)

    def ask(self, records: Records, key: str | None = None) -> Any:
        """The answer about the records of a table; an `Answer`, a frame, or for a map a `Release`.

        Raises what the terminals of `Records` do.
        """
        taken = {name: value for name, value in self.answer.items() if name != "kind"}
        derived = self.records(records)
        if self.kind == "map":
            return _map(derived, taken, key)
        if "clip" in taken:
            taken["clip"] = tuple(taken["clip"])
        return getattr(derived, self.kind)(**taken, key=key)


def _map(records: Records, taken: dict[str, Any], key: str | None) -> Any:
    from deltahist.domain import Domain
    from deltahist.domain.operations import read_crs
    from deltahist.neighbourhood import Neighbourhood

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
        ((name, said),) = ((key, value) for key, value in step.items() if key != "by")
        records = _STEPS[name](records, said, step)
    return records


def _select(records: Records, said: Any, step: Mapping[str, Any]) -> Records:
    return records.select(*said) if isinstance(said, list) else records.select(**said)


def _union(records: Records, said: Any, step: Mapping[str, Any]) -> Records:
    first, *others = (_derive(records, steps) for steps in said)
    for other in others:
        first = first.union(other)
    return first


#: What each step does with records, what it takes, and the whole step.
_STEPS: dict[str, Callable[[Records, Any, Mapping[str, Any]], Records]] = {
    "where": lambda records, said, step: records.where(said),
    "select": _select,
    "flat_map": lambda records, said, step: records.flat_map(*said),
    "distinct": lambda records, said, step: records.distinct(*said),
    "at_most": lambda records, said, step: records.at_most(said, by=step.get("by", [])),
    "union": _union,
}
#: What each takes, and how that is said.
_TAKES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "where": (lambda said: isinstance(said, str), "text, such as \"hour >= 22 and kind = 'bus'\""),
    "select": (
        lambda said: _are_texts(said) or (isinstance(said, dict) and _are_texts([*said.values()])),
        "a list of columns, or a table of names and texts",
    ),
    "flat_map": (
        lambda said: isinstance(said, list) and all(isinstance(each, dict) for each in said),
        "a list of tables of names and texts",
    ),
    "distinct": (lambda said: _are_texts(said), "a list of columns"),
    "at_most": (lambda said: type(said) is int, "a whole number"),
    "union": (
        lambda said: isinstance(said, list) and len(said) > 1 and all(isinstance(each, list) for each in said),
        "two or more lists of steps",
    ),
}


def _checked_step(step: Mapping[str, Any]) -> None:
    names = [name for name in step if not (name == "by" and "at_most" in step)]
    if len(names) != 1 or names[0] not in _STEPS:
        raise InputError(
            f"a step is {', '.join(step) or 'empty'}: it must be one of {', '.join(_STEPS)} (at_most may have by)"
        )
    fits, rule = _TAKES[names[0]]
    if not fits(step[names[0]]):
        raise InputError(f"{names[0]} is {step[names[0]]!r}: it must be {rule}")
    by = step.get("by", [])
    if by != [] and not isinstance(by, str) and not _are_texts(by):
        raise InputError(f"by is {by!r}: it must be a column, or a list of columns")
    if names[0] == "union":
        for steps in step["union"]:
            for each in steps:
                _checked_step(each)


def _check_answer(answer: Mapping[str, Any]) -> None:
    kind = answer.get("kind")
    if kind not in _ANSWERS:
        raise InputError(f"kind of the answer is {kind!r}: it must be one of {', '.join(_ANSWERS)}")
    needed, optional = _ANSWERS[kind]
    missing = [name for name in needed if name not in answer]
    if missing:
        raise InputError(f"{' and '.join(missing)} missing: an answer of kind {kind!r} takes {', '.join(needed)}")
    _known(answer, ("kind", *_BUDGETS, *needed, *optional), f"an answer of kind {kind!r}")
    for name, said in answer.items():
        if isinstance(said, bool):
            raise InputError(f"{name} is {str(said).lower()}: an answer takes numbers, text and lists of them")
    if sum(name in answer for name in _BUDGETS) != 1:
        raise InputError("an answer spends epsilon or rho, one of them: it must say how much")


def _known(said: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
    other = [name for name in said if name not in names]
    if other:
        raise InputError(f"{', '.join(other)} is not known in {what}: there are {', '.join(names)}")


def _are_texts(said: Any) -> bool:
    return isinstance(said, list) and bool(said) and all(isinstance(each, str) for each in said)
