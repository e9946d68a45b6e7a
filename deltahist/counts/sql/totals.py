"""Expressions that give a value for every record: their kinds, and how small and large their numbers can be."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltahist.counts.sql.kinds import DTYPES, LARGEST, SMALLEST, as_time, bounded
from deltahist.errors import InputError, shown

#: Nodes of an expression as it is written out, guards included, and how deep they may be nested.
MOST_NODES, _MOST_DEEP = 4000, 60

WORDS = {
    "truth": "true or false", "whole": "a whole number", "number": "a number", "text": "text", "time": "a time",
    "date": "a date", "null": "NULL",
}  # fmt: skip


@dataclass(frozen=True)
class SafeExpression:
    """An expression that gives a value for every record.

    Parameters
    ----------
    value : Ibis expression. kind : "truth", "whole", "number", "text", "time", "date", or "null" for NULL itself.
    columns : that it depends on.
    least, most : a number is zero, or its size is between them.
    nodes, deep : how long it is when written out, and how deeply nested.
    constant : what it always is; None if that depends on the record.
    """

    value: Any
    kind: str
    columns: frozenset[str] = frozenset()
    least: float = SMALLEST
    most: float = LARGEST
    nodes: int = 1
    deep: int = 1
    constant: Any = None


def of_kind(made: SafeExpression, kind: str) -> SafeExpression:
    """The same of another kind, if that is a matter of writing: whole numbers as numbers, dates as times, NULL as any.

    Raises InputError otherwise.
    """
    import ibis

    if made.kind == kind:
        return made
    if made.kind == "null":
        return replace(made, value=ibis.null(DTYPES[kind]), kind=kind, most=SMALLEST)
    if (made.kind, kind) == ("whole", "number"):
        if made.constant is not None:
            return replace(constant(float(made.constant)), columns=made.columns)
        return made_of(made.value.cast("float64"), kind, [made], least=1.0, most=made.most)
    if (made.kind, kind) == ("date", "time"):
        return made_of(made.value.cast(DTYPES["time"]), kind, [made])
    if made.kind == "text" and made.constant is not None and kind in ("time", "date"):
        return constant(as_time(made.constant, kind))
    raise InputError(
        f"the query takes {WORDS[made.kind]} for {WORDS[kind]}: they must be of one kind, and text is never read as "
        "a number (extract, floor and comparisons change kinds)"
    )


def unified(parts: Sequence[SafeExpression]) -> list[SafeExpression]:
    """Expressions as the one kind that all of them can be of; InputError if there is none."""
    kinds = {part.kind for part in parts if part.kind != "null"}
    # A constant text may stand for a time.
    steady = {part.kind for part in parts if part.constant is None or part.kind != "text"} - {"null"} or kinds
    wide = next((to for one, to in (("whole", "number"), ("date", "time")) if steady == {one, to}), None)
    common = wide or min(steady, default="null")
    return [of_kind(part, common) for part in parts]


def too_long() -> InputError:
    return InputError(
        f"the query has an expression of more than {MOST_NODES:,} parts, guards included, or nested more than "
        f"{_MOST_DEEP} deep: compute parts of it by select first"
    )


def made_of(
    value: Any,
    kind: str,
    parts: Sequence[SafeExpression],
    least: float = SMALLEST,
    most: float = LARGEST,
    more: int = 1,
) -> SafeExpression:
    """What is made of parts."""
    nodes = more + sum(part.nodes for part in parts)
    deep = 1 + max((part.deep for part in parts), default=0)
    if nodes > MOST_NODES or deep > _MOST_DEEP:
        raise too_long()
    columns = frozenset[str]().union(*(part.columns for part in parts))
    return SafeExpression(value, kind, columns, least, most, nodes, deep)


def within(part: SafeExpression, least: float, most: float) -> SafeExpression:
    """A number that is zero where it was smaller than `least`, and NULL where it was larger than `most`."""
    if part.least >= least and part.most <= most:
        return part
    return made_of(bounded(part.value, least, most), "number", [part] * 4, least, most, more=6)


def constant(value: Any) -> SafeExpression:
    """A constant, written in a way that every database reads exactly alike."""
    import ibis

    if isinstance(value, bool):
        return SafeExpression(ibis.literal(value), "truth", constant=value)
    if isinstance(value, int):
        if abs(value) >= 1 << 63:
            raise InputError(f"the query has the constant {shown(value)}: whole numbers are below 2^63 in size")
        return SafeExpression(
            ibis.literal(value).cast("int64"),
            "whole",
            least=1.0,
            most=max(1.0, abs(float(value))),
            constant=value,
        )
    if isinstance(value, float):
        if not math.isfinite(value) or (value and not SMALLEST <= abs(value) <= LARGEST):
            raise InputError(
                f"the query has the constant {value}: numbers are 0 or of a size of 1e-100 to 1e100"
            )
        size = abs(value) or 1.0
        return SafeExpression(
            ibis.literal(repr(value)).cast("float64"), "number", least=size, most=size, constant=value
        )
    if isinstance(value, str):
        if "\0" in value:
            raise InputError(f"the query has the constant {value!r}: text must not hold the character 0")
        return SafeExpression(ibis.literal(value, "string"), "text", constant=value)
    kind = "time" if isinstance(value, datetime.datetime) else "date"
    text = value.isoformat(" ") if kind == "time" else value.isoformat()
    return SafeExpression(ibis.literal(text).cast(DTYPES[kind]), kind, constant=value)
