"""Amounts for the steps of a stream, from a table."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from deltahist._files import read_rows
from deltahist.errors import InputError, shortened, typed


def read_amounts(file: str | Path, labels: Sequence[str], unit: str) -> list[Fraction]:
    """What each step of a stream gets, from a CSV file with the columns `step` and epsilon (or rho).

    Raises InputError unless steps rise, without repetition and gap, and amounts are numbers, zero or more.
    """
    file = Path(file)
    rows = read_rows(file, "budgets")
    if not rows or not {"step", unit} <= set(rows[0]):
        raise InputError(f"budgets {file.name!r} must have a header with the columns step and {unit}")
    names = [str(row["step"]).strip() for row in rows]
    for place, (name, label) in enumerate(zip(names, labels, strict=False)):
        if name != label:
            why = "repeated" if name in names[:place] else "out of order, or after a gap"
            raise InputError(
                f"budgets {file.name!r} has step {name!r} where {label!r} must be ({why}): one row for each step "
                "from the first on, in order"
            )
    if len(names) < len(labels):
        raise InputError(
            f"budgets {file.name!r} ends at step {names[-1]!r}: it must reach the last step, {labels[-1]!r}"
        )
    out = []
    for row, label in zip(rows, labels, strict=False):
        said = str(row[unit]).strip()
        amount = typed(said)
        if amount is None or amount < 0:
            raise InputError(
                f"budgets {file.name!r} has {shortened(said)} for step {label}: it must be a number, zero or more"
            )
        out.append(amount)
    return out
