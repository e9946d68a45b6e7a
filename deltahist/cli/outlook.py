"""The outlook of a stream before it spends, for `stream`, `plan --stream` and `advise --every`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from deltahist.cli import console
from deltahist.cli.groups import LETTERS
from deltahist.cli.maps import ChosenMap, MapOptions, PlanOptions, sources_option
from deltahist.cli.options import length as read_length, option, window_limit
from deltahist.errors import NANO, InputError, typed

if TYPE_CHECKING:
    from deltahist.accounts.window import Window
    from deltahist.mechanisms import Mechanism
    from deltahist.planning.forecast import Outlook
    from deltahist.preprocessing import Clock

#: Steps that a stream may have.
MOST_STEPS = 10_000_000
#: Regions that a line names.
_NAMED = 5

WINDOW_LIMIT = option(
    "STEPS:TIMES",
    "So many steps in a row spend at most TIMES the budget: 30:2; repeat it. any:4 holds for all steps there will ever "
    "be, and takes --budgets.",
    window_limit,
    several=True,
)


@dataclass(frozen=True, kw_only=True)
class StreamPlace(MapOptions):
    """The map of a stream, on which people may appear and vanish."""

    cell: float | str | None = option(
        "LENGTH", "Side of a cell: 250m, a plain number, or auto: the least error of a step. [default: δ]", read_length
    )
    sources: str = sources_option("boundary")
    _CHOOSES: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Cadence:
    """The steps of a stream that is planned."""

    every: str | None = option("PERIOD", "Of a stream: length of a step, 1d, 6h, 15min, 1w. None for numbers.")
    duration: str | None = option("PERIOD", "Of a stream: how long it goes on, 52w; or how many steps.", names="--for")

    def read(self) -> tuple[Clock, int]:
        """Return the clock, and the number of its whole steps."""
        from deltahist.preprocessing import Clock, read_period

        if self.duration is None:
            raise InputError("--for is missing: it says how long the stream goes on, such as 52w, or how many steps")
        clock = Clock(0, 0 if self.every is None else read_period(self.every, "--every"))
        number = typed(self.duration)
        if number is None and not clock.every:
            raise InputError(
                f"--for is {self.duration!r} without --every, the length of a step: it must be a number of steps"
            )
        steps = Fraction(read_period(self.duration, "--for"), clock.every) if number is None else number
        if not 1 <= steps <= MOST_STEPS or (number is not None and steps.denominator > 1):
            raise InputError(f"--for is {self.duration!r}: it must be from 1 to {MOST_STEPS:,} steps of --every")
        return clock, int(steps)


def share_of_step(window: Window) -> Fraction:
    """Return the equal share of a step, for which cells are chosen; InputError where it would run out."""
    for each in window.rule.longer:
        if each.any:
            raise InputError(
                f"--window-limit is any:{float(each.factor):g} without --budgets: equal shares would be spent after "
                f"{int(each.factor * (window.length or 1)):,} steps, since an endless stream at constant noise "
                "promises nothing for changes without end; say for how many steps the limit is to hold, or what each "
                "step gets"
            )
    length, limit = window.binding
    return Fraction(window.epsilon or window.rho or 0) * Fraction(limit, window.limit * length)


def describe_shares(
    window: Window, clock: Clock, steps: int, amounts: Sequence[Fraction] | None = None
) -> dict[str, str]:
    """Tell what a step costs, which limit binds, and what that leaves of the others: lines for `facts`."""
    from deltahist.budget import say_amount

    letter, whole = LETTERS[window.unit], Fraction(window.limit, NANO)
    options = [f"`--window {window.length}`"]
    options += [f"`--window-limit {'any' if e.any else e.distance}:{float(e.factor):g}`" for e in window.rule.longer]
    spans = dict(zip(window.rule.spans, options, strict=True))
    period = f" of {clock.period} each" if clock.every else ""
    told = {"steps": f"{steps:,}{period}"}
    if amounts is None:
        length, limit = binding = window.binding
        share = say_amount(window.equal, whole)
        most = say_amount(Fraction(limit, NANO), whole)
        told["each_step"] = f"{letter} = {share}: {spans[binding]} binds, any {length:,} steps spend at most {most}"
        why = f", since {spans.pop(binding)} leaves no more"
    else:
        told["each_step"] = f"{letter} = {say_amount(min(amounts), whole)} to {say_amount(max(amounts), whole)}"
        why = " at most, by --budgets"
    for (number, limit), name in spans.items():
        spent = (number or 0) * window.equal if amounts is None else _most_in_a_row(amounts, number)
        told[f"any_{number:,}_steps" if number else "all_steps"] = (
            f"{letter} = {say_amount(spent, whole)} of {say_amount(Fraction(limit, NANO), whole)} ({name}){why}"
            f"{', which is too much' * (spent * NANO > limit)}"
        )
    return told


def _most_in_a_row(amounts: Sequence[Fraction], number: int | None) -> Fraction:
    """Return the most that a number of steps in a row spend; all of them when None."""
    sums = [Fraction(0), *itertools.accumulate(amounts)]
    return max(end - sums[max(0, at - (number or at))] for at, end in enumerate(sums) if at)


def _sum_name(outlook: Outlook) -> str:
    return f"all {outlook.steps:,} steps" if outlook.period == "all" else f"a {outlook.period}"


def _figure(number: float) -> str:
    """Return a number with four digits, and zeros behind them."""
    return f"{float(f'{number:.4g}'):,.10g}"


class OutlookTable:
    """Expected errors of sums over the steps of a stream, as a table."""

    def __init__(self, mechanism: Mechanism, clock: Clock, steps: int, chosen: ChosenMap, asked: PlanOptions) -> None:
        from deltahist.planning.forecast import forecast

        self.chosen, self.asked = chosen, asked
        points = None if asked.points is None else asked.number
        self.outlooks = list(forecast(mechanism, clock, steps, chosen.work, points))
        self.letter, self.kind = mechanism.letter, "query" if asked.regions is None else "region"

    def describe(self, whole: Fraction) -> str:
        """Render the table, with what its figures are; amounts to a millionth of the budget."""
        import numpy as np

        from deltahist.budget import say_amount

        heads = ["sum over", "steps", "spends", "error of a cell", f"of a {self.kind}"]
        single = self.chosen.work is not None and self.outlooks[0].each is not None
        judged = single and self.outlooks[0].counts is not None
        heads += ["least", "median", "most"] * single + ["points in one", "drown"] * judged
        rows = []
        for outlook in self.outlooks:
            row = [
                _sum_name(outlook),
                f"{outlook.steps:,}",
                f"{self.letter} = {say_amount(outlook.spends, whole)}",
                "" if outlook.cell is None else _figure(outlook.cell),
                _figure(outlook.queries),
            ]
            if single and outlook.each is not None:
                row += [_figure(error) for error in np.quantile(outlook.each, (0, 0.5, 1))]
                if outlook.counts is not None:
                    drowned = int((outlook.each > outlook.counts).sum())
                    row += [_figure(outlook.counts.mean()), f"{drowned:,} of {len(outlook.counts):,}"]
            rows.append(row)
        lines = [f"Queries are {self.chosen.queries}; errors are of noise alone, in points (root mean square)."]
        if judged:
            lines.append(
                f"A {self.kind} drowns if its error is above its points: about {self.asked.number:,.0f} in a step "
                "(--points), taken to be spread evenly over the map's area."
            )
            lines += self._list_drowned()
        elif single:
            lines.append("Which of them drown in noise cannot be judged without --points (about how many a step has).")
        return f"{console.table(heads, rows)}\n" + "\n".join(lines) + "\n"

    def _list_drowned(self) -> Iterator[str]:
        """Yield lines with the names of queries that drown in a step, and in the longest sum; the worst ones first."""
        import numpy as np

        assert self.chosen.work is not None
        names = self.asked.names(self.chosen.work, self.chosen.near.domain)
        for outlook in dict.fromkeys((self.outlooks[0], self.outlooks[-1])):
            if not names or outlook.each is None or outlook.counts is None:
                return
            worst = np.argsort(outlook.counts / outlook.each)
            drowned = [names[at] for at in worst if outlook.each[at] > outlook.counts[at]]
            more = f" and {len(drowned) - _NAMED:,} others" if len(drowned) > _NAMED else ""
            if drowned:
                listed = "all" if len(drowned) == len(names) else f"{', '.join(drowned[:_NAMED])}{more}"
                yield f"In {_sum_name(outlook)} drown {listed}."

    def records(self) -> list[dict[str, Any]]:
        """Return the same figures, for JSON; the errors of each region or box by name."""
        work = self.chosen.work
        names = [] if work is None else self.asked.names(work, self.chosen.near.domain)

        def by_name(figures: Any) -> dict[str, float] | None:
            return dict(zip(names, figures.tolist(), strict=True)) if names and figures is not None else None

        return [
            {
                "period": each.period,
                "steps": each.steps,
                "spends": float(each.spends),
                "error_of_cell": each.cell,
                "error": each.queries,
                "errors": by_name(each.each),
                "points": by_name(each.counts),
            }
            for each in self.outlooks
        ]

    def refuse_drowning(self) -> None:
        """Raise InputError if regions have more noise in a step than points, by a figure that the caller gave."""
        step = self.outlooks[0]
        if self.asked.regions is None or step.counts is None or step.queries <= step.counts.mean():
            return
        mean = step.counts.mean()
        enough = math.ceil((step.queries / mean) ** 2) if mean else math.inf
        raise InputError(
            f"--points is {self.asked.number:,.0f} in a step, {mean:,.3g} on average in {len(step.counts):,} regions, "
            f"but the noise in a region has a standard error of {step.queries:,.3g}: single steps would say nothing; "
            "take longer steps, fewer regions or more budget (advise --every compares), or say --anyway (from "
            f"{enough:,} steps on, sums over them have more points than noise)"
        )
