"""`deltahist allocate`: how a budget per window is best spread over steps of different weight."""

from __future__ import annotations

import csv
import io
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

from deltahist._files import read_rows
from deltahist.cli import console, options
from deltahist.cli.groups import Spending, Window
from deltahist.cli.options import argument, option
from deltahist.errors import NANO, InputError


def allocate(
    *,
    weights: Annotated[
        Path, argument("WEIGHTS.csv", "Columns weight and maybe step: a row per step, 0 for no release.")
    ],
    length: Window,
    spending: Spending,
    power: Annotated[
        Fraction | None,
        option("A", "Error falls as budget^-A. [default: 2 for --epsilon, 1 for --rho]", read=options.amount),
    ] = None,
    online: Annotated[
        Fraction | None,
        option(
            "P",
            "Decide step by step, as if later weights were not known: 1 with probability P, else 0.",
            read=options.amount,
        ),
    ] = None,
    scenarios: Annotated[
        int, option("N", "With --online: futures per decision. [default: 1000]", read=options.whole_number)
    ] = 1000,
    out: Annotated[
        Path | None, option("FILE", "Write step and amount as CSV, for `stream --budgets`.")
    ] = None,
) -> Any:
    """Spread a budget over steps so that the weighted error is least and no window exceeds it.

    Weights say how much a step's release matters; they must be public, never taken from the private data.

    \b
    Examples:
      deltahist allocate demand.csv --window 7 --epsilon 1
      deltahist allocate demand.csv --window 7 --epsilon 1 --out budgets.csv
      deltahist allocate demand.csv --window 7 --epsilon 1 --online 0.5
    """
    import numpy as np

    from deltahist.accounts.allocation import Independent, allocate_offline, allocate_online

    budget = spending.keywords()
    unit, limit = next(iter(budget.items()))
    console.check_target(out, weights)
    steps, wanted = _read_weights(weights)
    a = float(power or (2 if unit == "epsilon" else 1))
    if online is None:
        found = allocate_offline(wanted, length=length, epsilon=limit, power=a)
    else:
        chance = float(online)
        if chance > 1:
            raise InputError(f"--online is {chance:g}: it must be a probability, at most 1")
        how: dict[str, Any] = {"length": length, "epsilon": limit, "power": a, "scenarios": scenarios}
        how["model"] = Independent((0.0, 1.0), (1 - chance, chance))
        made: list[float] = []
        for step in range(len(wanted)):
            first = max(0, step - length + 1)
            left = len(wanted) - first
            made.append(allocate_online(made[first:], wanted[first : step + 1], steps=left, **how))
        found = np.array(made)
    said = [f"{round(amount * NANO) / NANO:.9f}".rstrip("0").rstrip(".") for amount in found]
    if out is None:
        rows = zip(steps, [f"{weight:g}" for weight in wanted], said, strict=True)
        print(console.table(["step", "weight", unit], rows))
    else:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("step", unit), *zip(steps, said, strict=True)])
        console.put(text.getvalue(), out)
    print(_comparison(wanted, found, length, float(limit), a))
    return found


def _comparison(wanted: Any, found: Any, window: int, limit: float, power: float) -> str:
    """Weighted error of what was found and of equal shares."""
    import numpy as np

    on = wanted > 0
    if not on.any():
        return "all weights are 0: nothing is published"
    equal = float((wanted[on] * (limit / window) ** -power).sum())
    with np.errstate(divide="ignore"):
        error = float((wanted[on] * found[on] ** -power).sum())
    return f"weighted error {error:.6g}, {error / equal:.4g} of that of equal shares ({equal:.6g})"


def _sort_keys(names: list[str]) -> list[float]:
    """Return keys that sort steps by number or date; equal ones for names of another kind."""
    from deltahist.preprocessing import seconds

    for key in (float, lambda name: float(seconds(name, "step"))):
        try:
            return [key(name) for name in names]
        except ValueError:
            continue
    return [0.0] * len(names)


def _read_weights(file: Path) -> tuple[list[str], Any]:
    """Names of the steps and their weights."""
    import numpy as np

    from deltahist.accounts.allocation.problem import check_weights

    rows = read_rows(file, "weights")
    if not rows or "weight" not in rows[0]:
        raise InputError(
            f"{file.name!r} must have a header with the column weight (and maybe step), and rows"
        )
    names = [str(row.get("step") or place) for place, row in enumerate(rows, start=1)]
    if len(set(names)) < len(names):
        twice = next(n for i, n in enumerate(names) if n in names[:i])
        raise InputError(f"{file.name!r} has step {twice!r} more than once: one row for each step, in order")
    keys = _sort_keys(names)
    back = next((i for i in range(1, len(keys)) if keys[i] < keys[i - 1]), None)
    if back is not None:
        raise InputError(
            f"{file.name!r} has step {names[back]!r} after {names[back - 1]!r}: steps must be in order"
        )
    values = []
    for name, row in zip(names, rows, strict=True):
        try:
            values.append(float(str(row["weight"])))
        except ValueError:
            raise InputError(
                f"{file.name!r} has the weight {row['weight']!r} at step {name}: it must be a number"
            ) from None
    return names, check_weights(np.array(values))
