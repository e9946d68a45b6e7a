"""Questions in writing, as TOML or JSON: steps from a table's records to derived ones, and what is asked of these."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deltahist.errors import InputError
from deltahist.personal.aggregates import Aggregate, Count, Histogram, Mean, Sum
from deltahist.personal.people import Records

_KINDS: dict[str, type[Aggregate]] = {"count": Count, "sum": Sum, "mean": Mean, "histogram": Histogram}
_Model = TypeVar("_Model", bound=BaseModel)


class Strict(BaseModel):
    """A model that takes no unknown names, and no text for a number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Step(Strict):
    """One step of a query (`Query`): one of its methods with its argument; at_most may have `by`."""

    where: str | None = None
    select: list[str] | dict[str, str] | None = None
    flat_map: list[dict[str, str]] | None = None
    distinct: Annotated[list[str], Field(min_length=1)] | None = None
    at_most: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    by: str | list[str] = []
    union: Annotated[list[list[Step]], Field(min_length=2)] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Step:
        given = self.model_fields_set - {"by"}
        if len(given) != 1 or ("by" in self.model_fields_set and given != {"at_most"}):
            raise ValueError("a step must be one of where, select, flat_map, distinct, at_most (with by), union")
        return self

    def derive(self, records: Records) -> Records:
        """Derive records from records."""
        (name,) = self.model_fields_set - {"by"}
        given: Any = getattr(self, name)
        if name == "union":
            return functools.reduce(Records.union, (_derive(records, part) for part in given))
        if name == "at_most":
            return records.at_most(given, by=self.by)
        if isinstance(given, dict):
            return records.select(**given)
        derived: Records = getattr(records, name)(*([given] if name == "where" else given))
        return derived


class Question(Strict):
    """A question in writing: steps lead to the records that its answer is about.

    >>> Question.of({"steps": [{"where": "kind = 'bus'"}], "answer": {"kind": "count", "epsilon": 0.1}}).aggregate
    Count(epsilon=Fraction(1, 10), rho=None)
    """

    answer: dict[str, Any]
    steps: list[Step] = []
    table: str | None = None
    owner: str | None = None

    @classmethod
    def read(cls, path: str | Path) -> Question:
        """Read the question in a TOML file; InputError if there is none."""
        return cls.of(read_toml(Path(path), "question"))

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Question:
        """Return the question that a mapping describes; InputError if it describes none."""
        made = check_model(cls, given, "question")
        _ = made.aggregate
        return made

    @functools.cached_property
    def aggregate(self) -> Aggregate:
        """What is asked of the records, with its price."""
        named = {name: value for name, value in self.answer.items() if name != "kind"}
        kind = _KINDS.get(str(self.answer.get("kind")))
        if kind is None:
            raise InputError(f"answer is {str(self.answer)[:80]}: its kind must be one of {', '.join(_KINDS)}")
        try:
            return kind(**named)
        except TypeError as problem:
            raise InputError(f"answer is refused: {problem}") from None

    def ask(self, records: Records, key: str | None = None) -> Any:
        """Answer the question about the records of a table, by an `Answer` or `Answers` (`Records.ask`)."""
        return _derive(records, self.steps).ask(self.aggregate, key)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file; InputError if it is missing or damaged."""
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as problem:
        raise InputError(f"{what} {str(path)!r} cannot be read: {problem}") from None


def check_model(model: type[_Model], given: Any, what: str) -> _Model:
    """Return a model of what was given; InputError, naming the first field at fault, if it does not fit."""
    try:
        return model.model_validate(given)
    except (ValidationError, RecursionError) as problem:
        if isinstance(problem, RecursionError):
            raise InputError(f"{what} is nested too deeply") from None
        first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
        raise InputError(f"{'.'.join(map(str, first['loc'])) or what} is refused: {first['msg']}") from None


def _derive(records: Records, steps: list[Step]) -> Records:
    for step in steps:
        records = step.derive(records)
    return records
