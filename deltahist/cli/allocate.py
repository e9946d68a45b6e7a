"""`deltahist allocate`: how a budget per window is best spread over steps of different weight."""

from __future__ import annotations

import csv
import io
from fractions import Fraction
from pathlib import Path
from typing import Any

from deltahist._files import read_rows
from deltahist.cli import console
from deltahist.cli.groups import WINDOW, Spending
from deltahist.cli.options import amount, argument, option, whole_number
from deltahist.errors import NANO, InputError


def allocate(
    *,
    weights: Path = argument("WEIGHTS.csv", "Columns weight and maybe step: a row per step, 0 for no release."),
    length: int = WINDOW,
    spending: Spending,
    power: Fraction | None = option(
        "A", "Error falls as budget^-A. [default: 2 for --epsilon, 1 for --rho]", amount
    ),
    online: Fraction | None = option(
        "P", "Decide step by step, as if later weights were not known: 1 with probability P, else 0.", amount
    ),
    scenarios: int = option("N", "With --online: futures per decision.", whole_number, default=1000),
    out: Path | None = option("FILE", "Write step and amount as CSV, for `stream --budgets`."),
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
    ((unit, limit),) = budget.items()
    console.check_target(out, weights)
    steps, wanted = _read_weights(weights)
    how: dict[str, Any] = {"length": length, "epsilon": limit, "power": float(power or (2 if unit == "epsilon" else 1))}
    if online is None:
        found = allocate_offline(wanted, **how)
    else:
        chance = float(online)
        if chance > 1:
            raise InputError(f"--online is {chance:g}: it must be a probability, at most 1")
        model = Independent((0.0, 1.0), (1 - chance, chance))
        made: list[float] = []
        for step in range(len(wanted)):
            first = max(0, step - length + 1)
            known, left = wanted[first : step + 1], len(wanted) - first
            made.append(allocate_online(made[first:], known, steps=left, model=model, scenarios=scenarios, **how))
        found = np.array(made)
    amounts = [f"{round(amount * NANO) / NANO:.9f}".rstrip("0").rstrip(".") for amount in found]
    if out is None:
        rows = zip(steps, [f"{weight:g}" for weight in wanted], amounts, strict=True)
        print(console.table(["step", "weight", unit], rows))
    else:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([("step", unit), *zip(steps, amounts, strict=True)])
        console.put(text.getvalue(), out)
    print(_comparison(wanted, found, float(limit) / length, how["power"]))
    return found


def _comparison(wanted: Any, found: Any, share: float, power: float) -> str:
    """Compare the weighted error of what was found with that of equal shares."""
    import numpy as np

    on = wanted > 0
    if not on.any():
        return "all weights are 0: nothing is published"
    equal = float((wanted[on] * share**-power).sum())
    with np.errstate(divide="ignore"):
        error = float((wanted[on] * found[on] ** -power).sum())
    return f"weighted error {error:.6g}, {error / equal:.4g} of that of equal shares ({equal:.6g})"


def _read_weights(file: Path) -> tuple[list[str], Any]:
    """Read the names of the steps, in order if they are numbers or dates, and their weights."""
    import numpy as np

    from deltahist.accounts.allocation import check_weights
    from deltahist.preprocessing import seconds

    rows = read_rows(file, "weights")
    if not rows or "weight" not in rows[0]:
        raise InputError(f"{file.name!r} must have a header with the column weight (and maybe step), and rows")
    names = [str(row.get("step") or place) for place, row in enumerate(rows, start=1)]
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise InputError(f"{file.name!r} has step {twice!r} more than once: one row for each step, in order")
    for key in (float, lambda name: float(seconds(name, "step"))):
        try:
            keys = [key(name) for name in names]
        except ValueError:
            continue
        if keys != sorted(keys):
            back = next(place for place in range(1, len(keys)) if keys[place] < keys[place - 1])
            raise InputError(
                f"{file.name!r} has step {names[back]!r} after {names[back - 1]!r}: steps must be in order"
            )
        break
    values = []
    for name, row in zip(names, rows, strict=True):
        try:
            values.append(float(str(row["weight"])))
        except ValueError:
            raise InputError(
                f"{file.name!r} has the weight {row['weight']!r} at step {name}: it must be a number"
            ) from None
    return names, check_weights(np.array(values))
