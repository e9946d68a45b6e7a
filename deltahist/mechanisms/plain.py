"""The privacy statement in plain words: who is protected, how strongly, and what was done, for whoever reads a page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deltahist.domain.counting import UNPAID
from deltahist.errors import InputError
from deltahist.mechanisms.limits import length, main_limits, number, place_of_sources
from deltahist.privacy import Guarantee

if TYPE_CHECKING:
    from deltahist.mechanisms.base import BaseMechanism

#: A guess that is right more often than this is as good as knowing.
_KNOWING = 0.9995


@dataclass(frozen=True)
class Section:
    """A part of the statement: a heading, paragraphs, and maybe a table whose first column names its rows."""

    heading: str
    paragraphs: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def judged(facts: dict[str, Any]) -> tuple[str, str]:
    """The judgement of the statement ("yes", "no", or "only if" with what must hold), and the reason at length."""
    verdict, _, reason = facts["may_be_published"].partition(": ")
    if not facts["publishable"]:
        return verdict, (
            "The noise came from a seeded generator, so that whoever knows or guesses the seed can take it away "
            "again, or no publisher of this toolkit drew the numbers. Such a file is for trials only."
        )
    if facts["weak_protection"] is not None:
        return verdict, f"Hardly anybody is protected: {reason}."
    return verdict, (
        "The noise came from the operating system's cryptographic generator, nobody can draw it again, and its size is "
        "what the promise below needs. Whether that promise is strong enough for these people is for the publisher to "
        "answer."
    )


def sections(promise: BaseMechanism, facts: dict[str, Any]) -> list[Section]:
    """The statement's parts in the order in which they are read; `facts` are those of the release."""
    return [_protected(promise, facts), _by_distance(facts), _rows(promise, facts), _using(facts)]


def guess(facts: dict[str, Any], distance: dict[str, Any]) -> float | None:
    """How often a guess between two places so far apart is right at most, if both are equally likely beforehand.

    Under ε that is `Guarantee.certainty`. Under ρ it is what zCDP alone implies, whatever the noise: half of one and
    the total variation distance, by the inequalities of Pinsker and of Bretagnolle and Huber. None if nothing is
    promised so far.

    >>> round(guess({"rho": None}, {"exact": 1.0, "deltas": 1.0}), 3)
    0.731
    """
    cost = distance["exact"]
    if cost is None:
        return None
    if facts["rho"] is not None:
        return 0.5 + 0.5 * math.sqrt(min(cost / 2, -math.expm1(-cost)))
    fails = Fraction(0)
    if facts.get("probability"):
        own = Guarantee(Fraction(facts["epsilon"]), probability=Fraction(facts["probability"]))
        try:
            fails = own.times(max(1, math.ceil(distance["deltas"] - 1e-9))).probability
        except InputError:
            return None
    return Guarantee(Fraction(cost), probability=fails).certainty


def _of_100(share: float | None) -> str:
    if share is None or share > _KNOWING:
        return "nearly always"
    return f"{math.ceil(1000 * share - 1e-9) / 10:g} of 100"  # rounded up: it is a bound


def _right(share: float | None) -> str:
    found = _of_100(share)
    return f"right in {found} cases at most" if found[0].isdigit() else f"perhaps right {found}"


def _protected(promise: BaseMechanism, f: dict[str, Any]) -> Section:
    delta, points = length(f["delta"], f["unit"]), f["points_per_user"]
    kind = "place" if promise.domain.ndim == 2 else "value"
    if points is None:
        who = (
            "Every single point is protected, such as one visit. A person with several points is protected for each of "
            "them, and less for all of them together."
        )
        whose = f"the {kind} of a point"
    else:
        who = (
            f"All {kind}s that were kept of a person, up to {points:,}, are protected together."
            if points > 1
            else f"The one {kind} that was kept of each person is protected."
        )
        whose = f"a person's {kind}{'s' if points > 1 else ''}"
    strength = (
        f"Suppose that somebody knows everything but {whose}, and holds two possibilities for equally likely that are "
        f"no more than {delta} apart (the length that is called δ below). Whatever they do with what is published, "
        f"their guess is {_right(guess(f, f['protection'][0]))}; tossing a coin is right in 50. Over longer distances "
        f"the protection is weaker{_further(promise, f)}: the table says how much."
    )
    if promise.neighbourhood.fixed_membership:
        there = f"Only {kind}s are hidden: who is in the data, and how many they are, is taken to be known."
    else:
        named = place_of_sources(promise.neighbourhood)
        anywhere = {"exact": f["appear_anywhere"], "deltas": f["protection"][-1]["deltas"]}
        there = (
            f"Being in the data at all is hidden as well as a {kind} is, for whoever is within {delta} of {named}. "
            f"For others a guess at whether they are there is {_right(guess(f, anywhere))}."
        )
    seeded = (
        "This file keeps nothing of the following, which is what the same would promise with noise that nobody can "
        "draw again.",
    )
    kept = () if f["publishable"] else seeded
    return Section("Who is protected, and how strongly", (*kept, who, strength, there, _others(promise)))


def _further(promise: BaseMechanism, f: dict[str, Any]) -> str:
    """What the limits mean for guesses; nothing without limits."""
    out = []
    for limit in main_limits(promise.neighbourhood, 1 if f["rho"] is None else 2):
        far, cost = limit["distance"], (limit["times"] or 0) * (f["epsilon"] or f["rho"])
        deltas = f["protection"][-1]["deltas"] if far is None else far / f["delta"]
        apart = "however far apart they are" if far is None else f"up to {length(far, f['unit'], 6)} apart"
        out.append(f"{_right(guess(f, {'exact': cost, 'deltas': deltas}))} {apart}")
    return f", but limited (a guess is {', '.join(out)})" if out else ""


def _others(promise: BaseMechanism) -> str:
    """What other releases about the same people mean."""
    adds = "If more is published about the same people, what can be learnt about them adds up."
    step, chain = promise.step, promise.chain
    if chain is not None and chain.name and chain.copied is None:
        return (
            f"This is release {chain.number} of a chain of ever finer releases of the same data, {chain.name}: all "
            f"releases of it up to this one together promise what this one does. {adds}"
        )
    if chain is not None and chain.copied is not None:
        return (
            "This is a more private copy of a finer release of the same data: whoever has both, or several copies of "
            f"it, may learn what the finer one allows, and no more. {adds}"
        )
    if step is None:
        return adds
    unit, whole = step.budget.unit, float(step.budget.amount)
    together = guess({"rho": whole if unit == "rho" else None}, {"exact": whole, "deltas": 1.0})
    return (
        f"This is step {step.label} of a stream of releases: {step.words}. So with all of them a guess at one whose "
        f"data differ within {step.window:,} steps, by no more than δ in each, is {_right(together)}. About whoever "
        "comes for longer more can be learnt, and from anything else that is published as well."
    )


def _by_distance(f: dict[str, Any]) -> Section:
    letter, more = "ε" if f["rho"] is None else "ρ", " and the limits" if f["limits"] else ""
    rows = []
    for row in f["protection"]:
        cost, bound = ("none" if row[k] is None else f"{row[k]:.4g}" for k in ("exact", "bound"))
        rows.append((length(row["distance"], f["unit"]), _of_100(guess(f, row)), cost, bound))
    rows[-1] = (f"{rows[-1][0]}, anywhere at all", *rows[-1][1:])
    if "appear_anywhere" in f:
        anywhere = {"exact": f["appear_anywhere"], "deltas": f["protection"][-1]["deltas"]}
        rows.append(("being there or not", _of_100(guess(f, anywhere)), f"{f['appear_anywhere']:.4g}", ""))
    text = (
        f"How often a guess between two possibilities that are so far apart is right at most. {letter} is what the "
        f"difference costs: exactly, and by the rule of {letter} for every δ{more}; with 0 nothing could be learnt."
    )
    header = ("Distance", "A guess is right in", letter, f"{letter} {'promised' if more else 'by rule'}")
    return Section("Protection by distance", (text,), header, tuple(rows))


def _rows(promise: BaseMechanism, f: dict[str, Any]) -> Section:
    counting = promise.counting
    size = " × ".join(number(c, 6) for c in f["cell_size"])
    cells = f"{' × '.join(f'{n:,}' for n in f['cells'])} cells of {size} {f['unit']}"
    done = []
    if counting.where is not None:
        done.append(
            f"Only rows where {counting.where} were taken. Which rows these are is taken to be known: the condition "
            "hides nothing that it asks for."
        )
    if counting.user:
        kept = f"{counting.contributions:,} rows were" if counting.contributions > 1 else "1 row was"
        done.append(f"Of each person at most {kept} kept, chosen without looking at places.")
    if "bad rows" in f["dropped"]:
        done.append("Rows whose coordinates could not be used were left out.")
    if UNPAID in f["dropped"]:
        done.append(
            "Every person has a budget of their own, from which each of their records was paid for; records of people "
            "who could not pay were left out."
        )
    if counting.projection is not None:
        done.append(f"All coordinates came to the map by one operation: {counting.projection.name}.")
    where = "left out" if "points outside" in f["dropped"] else "counted in the nearest cell"
    done.append(f"The map has {cells}; points outside it were {where}.")
    if f["total_public"]:
        total = "" if f["total"] is None else f", {f['total']:,},"
        done.append(f"The number of points{total} is published exactly; it is taken to be known.")
    else:
        done.append("The number of points is not published.")
    laws = [n["std"] for n in f["noise"] if n["std"] is not None]
    if laws:
        spread = f"{min(laws):.3g}" if min(laws) == max(laws) else f"{min(laws):.3g} to {max(laws):.3g}"
        unit = f["noise"][0].get("unit", "points")
        what = "1 number was" if f["values"] == 1 else f"{f['values']:,} numbers were"
        done.append(
            f"{what} published, with random whole-number noise of a standard deviation of {spread} {unit} in each. "
            "Nothing else was."
        )
    else:
        done.append(f"One number was published: {f['noise'][0]['law']}.")
    return Section("What was done with the rows", tuple(done))


def _using(f: dict[str, Any]) -> Section:
    text = [
        "Whatever is computed from these figures is protected as they are: no calculation takes the noise away. Pass "
        "them on together with this statement.",
    ]
    if f["determines_cells"] is not None and "unit" not in f["noise"][0]:  # counts, not coordinates
        text.append(
            "Every figure is an estimate and comes with a standard error; state both. Unbiased estimates of small or "
            "empty areas can be below zero: leave them so when adding up, or the sum will be too large. Non-negative "
            "ones are usually nearer to the truth, but sums of many are a little off; files and maps say which they "
            "show. A single cell can be mostly noise; larger areas are known better."
        )
    if f["determines_cells"] is False:
        text.append("The numbers do not determine every cell; answers say which share was not measured.")
    return Section("Using and citing these figures", tuple(text))
