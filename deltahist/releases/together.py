"""All steps of a series together: their statement as data, in rows, and in the words and tables of its page."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from deltahist.errors import NANO
from deltahist.releases.guesses import bound_guess, say_guess
from deltahist.statement import Facts, Row, list_rows as list_own_rows

if TYPE_CHECKING:
    from deltahist.releases.series import Series

#: Paragraphs and tables; the first row of a table is its header, the paragraph before it its caption.
Blocks: TypeAlias = list[str | Sequence[Sequence[str]]]
#: Runs of steps that the table lists, and missing steps that a row names.
_MOST_RUNS, _MOST_NAMED = 60, 20
#: Letters of a line of the statement.
_WIDTH = 100


def list_facts(series: Series) -> Facts:
    """Return the statement as JSON-ready data: of the step that spends most, with `series` for all of them."""
    clock, place = series.clock, series.example.mechanism.step
    window = None if place is None else {key: value for key, value in place.describe().items() if key != "number"}
    spent = series.costs.spent
    together = {
        "first": clock.label(series.first),
        "last": clock.label(series.last),
        "period": clock.period or None,
        "steps": series.last - series.first + 1,
        "published": len(series.releases),
        "missing": series.missing,
        "withdrawn": [clock.label(step) for step in sorted(series.withdrawn)],
        "window": window,
        "spent": {clock.label(step): spent[step] / NANO for step in sorted(spent)},
        "costs": series.costs.describe(),
    }
    own = {"publishable": series.publishable, "may_be_published": series.may_be_published, "series": together}
    return series.mechanism.facts() | own


def list_rows(series: Series) -> list[Row]:
    """Return all rows of the statement: of all steps together, then of the step that spends most."""
    costs, clock, place = series.costs, series.clock, series.example.mechanism.step
    each = f" of {clock.period}" if clock.period else ""
    ends = f"from {clock.label(series.first)} to {clock.label(series.last)}"
    steps = [f"{series.last - series.first + 1:,}{each}, {ends}"]
    if missing := series.missing_words:
        named = ", ".join(missing[:_MOST_NAMED]) + (", ..." if len(missing) > _MOST_NAMED else "")
        have = "has" if len(missing) == 1 else "have"
        steps.append(f"{len(missing):,} of them {have} no release, which is not the same as empty: {named}")
    least, most = min(costs.spent.values()), max(costs.spent.values())
    amount = [f"{costs.letter} = {costs.say(most, most)}"]
    if least < most:
        amount = [
            f"{costs.letter} = {costs.say(least, most)} to {costs.say(most, most)}",
            f"what follows below is about {clock.label(series.dearest)}, which spends most",
        ]
    rows: list[Row] = [("Steps", steps), ("Spent in each", amount)]
    if place is not None and costs.spans:
        rows.append(("Promise", [place.words, f"for data that differ in more steps: {'; '.join(place.beyond)}"]))
    rows.append(("Spent", [line for line in (costs.standing, costs.elsewhere) if line]))
    rows.append(("In all", [line for line in (costs.total, costs.bound) if line]))
    rows = [(label, [part for line in lines for part in textwrap.wrap(line, _WIDTH)]) for label, lines in rows]
    return rows + [row for row in list_own_rows(series.mechanism, list_facts(series)) if row[0] != "Account"]


def list_runs(series: Series) -> list[tuple[str, str, int, int | None, bool]]:
    """Return runs of steps that are alike: the first, the last, their number, the amount each, whether withdrawn.

    The amount is None where no release is known.
    """
    spent = series.costs.spent
    alike = itertools.groupby(
        range(series.first, series.last + 1), key=lambda step: (spent.get(step), step in series.withdrawn)
    )
    label = series.clock.label
    runs = [(list(steps), *state) for state, steps in alike]
    return [(label(own[0]), label(own[-1]), len(own), *state) for own, *state in runs]


def introduce_series(facts: Facts) -> str:
    """Return a paragraph that says of which release the page is, and where all of them stand."""
    series = facts["series"]
    period = f" of {series['period']}" if series["period"] else ""
    return (
        f"This page is about {series['published']:,} releases, one for each step{period} from {series['first']} to "
        f"{series['last']}. What stands here and in the table of distances is about one of them, the one that spends "
        "most. What can be learnt from several adds up, as follows."
    )


def explain_series(series: Series, facts: Facts) -> Blocks:
    """Return what all releases cost together: the rest of the budget, somebody in all steps, tables."""
    costs, place = series.costs, series.example.mechanism.step
    letter, number = costs.letter, len(costs.spent)
    words = [costs.standing]
    if place is not None and costs.spans:
        window = place.budget.amount
        right = say_guess(bound_guess(facts, float(window), place.window))
        words.append(
            f"The promise is that {place.words}. With all releases a guess at one whose data differ within "
            f"{place.window:,} steps, by no more than δ in each, is {right}. For data that differ in more steps the "
            f"bound is larger: {'; '.join(place.beyond)}."
        )
    if number > 1:
        right = say_guess(bound_guess(facts, costs.in_all / NANO, number))
        words.append(f"{costs.total} With all of them a guess at such a one is {right}. {costs.bound or ''}".rstrip())
    else:
        words.append(costs.total)
    if costs.elsewhere is not None:
        words.append(costs.elsewhere)
    spans: list[tuple[str, ...]] = [("Steps in a row", "May spend", "Have spent at most", "The last spent", "Left")]
    for length, limit in costs.spans:
        spent = costs.spent_within(length, costs.last)
        figures = (limit, costs.most_within(length), spent, max(limit - spent, 0))
        spans.append(("all" if length is None else f"{length:,}", *(costs.say(each, limit) for each in figures)))
    spans.append((f"these {number:,} releases", "", costs.say(costs.in_all), "", ""))
    steps: list[tuple[str, ...]] = [("Steps", "Number", f"{letter} of each", f"{letter} of all")]
    runs = list_runs(series)
    for first, last, many, nano, withdrawn in runs[:_MOST_RUNS]:
        name = (first if many == 1 else f"{first} to {last}") + (", withdrawn" if withdrawn else "")
        told = ("no release", "") if nano is None else (costs.say(nano), costs.say(many * nano))
        steps.append((name, f"{many:,}", *told))
    more = f", the first {_MOST_RUNS} of {len(runs):,} runs of equal ones" if len(runs) > _MOST_RUNS else ""
    return [
        *words,
        f"What steps in a row may spend, and have spent ({letter}).",
        spans,
        f"What each step has spent{more}. A step without a release is not an empty one.",
        steps,
    ]
