"""The privacy statement: facts as data, and one list of rows that text and pages show."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from deltahist.errors import InputError
from deltahist.preprocessing import UNPAID
from deltahist.privacy import Guarantee
from deltahist.space.crs import words
from deltahist.space.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from deltahist.mechanisms.base import BaseMechanism

#: A label and its lines.
Row: TypeAlias = tuple[str, list[str]]
Facts: TypeAlias = dict[str, Any]

#: Limits that a line names. Of more, some are named.
MOST_NAMED = 4
#: Distances, in δ, at which the statement says what protection is left.
_MULTIPLES = (1, 2, 5, 10)
#: Distances closer than this ratio are one.
_LESS = 1 - 1e-6
_PLACES = {"boundary": "the domain's boundary", "left": "the left end", "right": "the right end"}
#: Groups of noisy numbers that the statement lists.
_MOST_GROUPS = 12
#: Letters in a line of text, and in front of its lines.
_WIDTH, _INDENT = 110, 20


def list_facts(mechanism: BaseMechanism) -> Facts:
    """Return the statement as JSON-ready data; entries that only a release has (such as its total) are None."""
    near, domain, guarantee = mechanism.neighbourhood, mechanism.domain, mechanism.guarantee
    counting, norm = mechanism.counting, 1 if guarantee.rho is None else 2
    # A geometry's vertices are rounded to the lattice as well as the points.
    steps_lost = 1 if near.sources is None or isinstance(near.sources, str) else 2
    facts: Facts = {
        "mechanism": mechanism.words,
        "promise": mechanism.promise,
        "domain": domain.describe(),
        "cells": list(domain.shape),
        "cell_size": [domain.ground(c) for c in domain.cell],
        "unit": domain.unit,
        "neighbour_relation": _explain_relation(mechanism),
        "delta": near.delta_ground,
        "delta_cells": list(near.delta_cells),
        "lattice_steps_lost": steps_lost,
        "delta_guaranteed": near.delta_ground - domain.ground(steps_lost * max(domain.step)),
        "projection": counting.projection,
        "sources": near.describe()["sources"],
        "unit_of_privacy": counting.unit,
        "points_per_user": counting.contributions if counting.user else None,
        "epsilon": None if guarantee.epsilon is None else float(guarantee.epsilon),
        "rho": None if guarantee.rho is None else float(guarantee.rho),
        "limits": list_limits(near, norm),
        "protection": [],
        "total_public": mechanism.total_known,
        "total": None,
        "dropped": list(counting.dropped),
        "where": counting.where,
        "noise": mechanism.noise_rows(),
        "determines_cells": mechanism.determines_cells,
        "digest": None,
        "publishable": None,
        "may_be_published": None,
        "account": None,
        "kept_by": None,
        "weak_protection": mechanism.weakness,
        "values": mechanism.size,
    }
    if counting.replaces is not None:
        facts["replaces"] = asdict(counting.replaces)
    if mechanism.chain is not None:
        facts["chain"] = mechanism.chain.describe()
    if mechanism.step is not None:
        facts |= {"step": mechanism.step.label, "window": mechanism.step.describe()}
    if guarantee.probability:
        facts["probability"] = float(guarantee.probability)
    if guarantee.rho is not None:
        facts["epsilon_at_1e-6"] = mechanism.approximate(1e-6)
    if not near.fixed_membership:
        facts["appear_anywhere"] = float(mechanism.cost_under(near.anywhere()))
    facts["protection"] = [_cost_within(mechanism, facts, r) for r in [*list_distances(near), near.diameter]]
    return facts


def _cost_within(mechanism: BaseMechanism, facts: Facts, distance: float) -> Facts:
    exact, bound = (None if cost == math.inf else float(cost) for cost in mechanism.cost_within(distance))
    deltas = distance / mechanism.neighbourhood.delta_ground
    guess = bound_guess(facts, exact, deltas)
    return {"distance": distance, "deltas": deltas, "exact": exact, "bound": bound, "guess": guess}


def _explain_relation(mechanism: BaseMechanism) -> str:
    near, counting = mechanism.neighbourhood, mechanism.counting
    who, recorded = "one point", "where it is recorded"
    if counting.user and counting.contributions == 1:
        who = "the one kept point of one user"
    elif counting.user:
        who = f"all kept points (at most {counting.contributions}) of one user"
        recorded = "where they are recorded"
    move = f"{who} may be anywhere within {number(near.delta_ground)} {near.domain.unit} of {recorded}"
    if near.fixed_membership:
        return f"{move}; who is in the data is fixed"
    return f"{move}, or may be absent if within that distance of {name_sources(near)}"


def bound_guess(facts: Facts, cost: float | None, deltas: float) -> float | None:
    """Return how often a guess between two equally likely places is right at most; None without a promise.

    Under ε that is `Guarantee.certainty`. Under ρ it is what zCDP implies for any noise: half of one and the total
    variation distance, by the inequalities of Pinsker and of Bretagnolle and Huber.

    Parameters
    ----------
    cost : ε, or ρ, of a move between the places; None if nothing is promised. deltas : their distance in δ.

    >>> round(bound_guess({"rho": None}, 1.0, 1.0), 3)
    0.731
    """
    if cost is None:
        return None
    if facts["rho"] is not None:
        return 0.5 + 0.5 * math.sqrt(min(cost / 2, -math.expm1(-cost)))
    fails = Fraction(0)
    if facts.get("probability"):
        own = Guarantee(Fraction(facts["epsilon"]), probability=Fraction(facts["probability"]))
        try:
            fails = own.times(max(1, math.ceil(deltas - 1e-9))).probability
        except InputError:
            return None
    return Guarantee(Fraction(cost), probability=fails).certainty


def out_of_hundred(share: float | None) -> str:
    """Return how many of a hundred guesses are right at most, rounded up since it is a bound."""
    return "nearly always" if share is None or share > 0.9995 else f"{math.ceil(1000 * share - 1e-9) / 10:g} of 100"


# --- texts --------------------------------------------------------------------------------------------------


def write_statement(facts: Facts, rows: Iterable[Row]) -> str:
    """Return the privacy statement as plain text."""
    lines = ["Privacy statement", "================="]
    if (warning := headline(facts)) is not None:
        lines = [warning, "", *lines]
    for label, texts in rows:
        starts = [f"{label:<{_INDENT}}", *[" " * _INDENT] * (len(texts) - 1)]
        for start, text in zip(starts, texts, strict=True):
            lines += textwrap.wrap(text, _WIDTH, initial_indent=start, subsequent_indent=" " * _INDENT)
    table = distance_table(facts)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines += ["", "Protection by distance"]
    lines += ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join(lines)


def headline(facts: Facts) -> str | None:
    """Return the warning that a statement begins with, if there is one."""
    if "withdrawn" in facts:
        return f"WITHDRAWN on {facts['withdrawn']['date']}: {facts['withdrawn']['reason']}"
    weak = facts["weak_protection"]
    return None if weak is None else f"WEAK PROTECTION: {weak}"


def distance_table(facts: Facts) -> list[tuple[str, ...]]:
    """Return the protection by distance: a row of headings, then a row for each distance."""
    letter = "ε" if facts["rho"] is None else "ρ"
    promised = f"{letter} {'promised' if facts['limits'] else 'bound'}"
    table: list[tuple[str, ...]] = [("distance", "in δ", "a guess is right in", f"{letter} exact", promised)]
    for row in facts["protection"]:
        exact, bound = ("nothing" if row[k] is None else f"{row[k]:.4g}" for k in ("exact", "bound"))
        far = length(row["distance"], facts["unit"], 4)
        table.append((far, f"{row['deltas']:.4g}", out_of_hundred(row["guess"]), exact, bound))
    table[-1] = (f"any move ({table[-1][0]})", *table[-1][1:])
    if "appear_anywhere" in facts:
        cost = facts["appear_anywhere"]
        share = out_of_hundred(bound_guess(facts, cost, facts["protection"][-1]["deltas"]))
        table.append(("being there or not", "", share, f"{cost:.4g}", ""))
    return table


def write_readme(mechanism: BaseMechanism, may_be_published: str) -> str:
    """Return some lines about a release for people who open its file with another program."""
    form, asked = (".csv", "--box LOW,HIGH") if mechanism.domain.ndim == 1 else (".gpkg", "--regions districts.gpkg")
    return "\n".join(
        [
            "This file is a release of deltahist: figures about places, in which random noise hides people.",
            f"Promise: {mechanism.promise}.",
            f"Hidden: {_explain_relation(mechanism)}.",
            f"May be published: {may_be_published}.",
            f"Column value: {mechanism.size:,} noisy whole numbers ({mechanism.words}).",
            "They are measurements, not cells: one may count many cells and share noise with others.",
            f"Cells with their standard errors: deltahist export FILE --out cells{form}",
            f"Sums with theirs: deltahist query FILE {asked}",
            "All promises: deltahist statement FILE, which verifies the file. Nothing verifies these lines.",
        ]
    )


def judge(publishable: bool, weak: str | None) -> str:
    """Return whether a release may be published, with the reason: "yes", "no: ..." or "only if ..."."""
    if not publishable:
        return "no: noise from a seeded generator, or numbers that no publisher of this toolkit drew"
    return "yes" if weak is None else f"only if everybody in the data accepts weak protection: {weak}"


def list_rows(mechanism: BaseMechanism, facts: Facts) -> list[Row]:
    """Return all rows of the statement, in order. A mechanism has fewer than a release."""
    released = facts["may_be_published"] is not None
    rows: list[Row] = []
    if released:
        rows.append(("May be published", [facts["may_be_published"], *_explain_step(mechanism)]))
    if released and not facts["publishable"]:
        rows.append(("Warning", ["This file protects nobody. The rest says what fresh noise would promise."]))
    rows += [
        ("In plain words", _explain_plainly(mechanism, facts)),
        *_promise_rows(mechanism, facts),
        *_publication_rows(mechanism, facts),
        *_people_rows(mechanism, facts),
        ("Noise", _noise_lines(facts["noise"])),
    ]
    if facts["determines_cells"] is False:
        rows.append(("Resolution", ["The numbers do not determine every cell; answers state what is unresolved."]))
    rows.append(("Use", _explain_use(mechanism, facts)))
    if released:
        rows.append(("Account", [facts["kept_by"] or _explain_no_account(mechanism, facts)]))
        if facts["digest"] is not None:
            rows.append(("SHA-256", [facts["digest"]]))
    return rows


def _explain_plainly(mechanism: BaseMechanism, facts: Facts) -> list[str]:
    points, delta = facts["points_per_user"], length(facts["delta"], facts["unit"])
    if points is None:
        protected = "Each single point is protected. A user with several points is protected less for all of them."
    else:
        kept = "the one kept point" if points == 1 else f"up to {points:,} kept points"
        protected = f"Each user is protected, with {kept}."
    share = out_of_hundred(facts["protection"][0]["guess"])
    near = share if share == "nearly always" else f"in {share} cases at most"
    what = "all releases together" if "series" in facts else "this release"
    guess = (
        "Suppose an attacker knows everything about everyone else, and weighs two guesses about the true place, at "
        f"most δ = {delta} apart. From {what} the better guess is right {near}; a coin is right "
        "in 50. Over longer distances the protection is weaker: see the table."
    )
    if mechanism.neighbourhood.fixed_membership:
        there = "Only places are hidden: who is in the data is taken as known."
    else:
        sources = name_sources(mechanism.neighbourhood)
        there = f"Being in the data is hidden as well for people within {delta} of {sources}."
    return [protected, guess, there]


def _promise_rows(mechanism: BaseMechanism, facts: Facts) -> list[Row]:
    cells = " × ".join(number(c) for c in facts["delta_cells"])
    lost = "one lattice step" if facts["lattice_steps_lost"] == 1 else "two lattice steps"
    raw = f"for raw coordinates {facts['delta_guaranteed']:.10g}: {lost} less"
    rows = [
        ("Guarantee", _guarantee_lines(facts)),
        ("Neighbours", [facts["neighbour_relation"]]),
        ("δ", [f"{number(facts['delta'])} {facts['unit']} = {cells} cells ({raw})"]),
        ("Unit of privacy", _unit_lines(mechanism)),
    ]
    letter, norm = ("ε", 1) if facts["rho"] is None else ("ρ", 2)
    if facts["limits"]:
        rows.append(("Limits", [explain_limits(mechanism.neighbourhood, letter, norm)]))
    if (step := mechanism.step) is not None:
        within = "one step" if step.window == 1 else f"{step.window:,} steps in a row"
        lines = [
            f"step {step.label} of a stream: {step.words}",
            f"That is the guarantee of all releases for data that differ within {within}.",
            f"For data that differ in more steps it is at most {'; '.join(step.beyond)}.",
        ]
        rows.append(("Stream", lines))
    if mechanism.chain is not None:
        rows.append(("Chain", [mechanism.chain.words(letter)]))
    return rows


def _guarantee_lines(facts: Facts) -> list[str]:
    if facts["rho"] is not None:
        epsilon = f"ε = {facts['epsilon_at_1e-6']:.3g} with a failure probability of 10⁻⁶"
        return [f"ρ = {number(facts['rho'])} zero-concentrated, which is {epsilon}"]
    ratio = math.exp(min(facts["epsilon"], 700.0))
    kind = f"with a failure probability of {facts['probability']:g}" if "probability" in facts else "(pure)"
    return [
        f"ε = {number(facts['epsilon'])} {kind}: any conclusion from the release is at most e^ε = {ratio:.3g} times "
        "likelier under one of two neighbouring data sets than under the other"
    ]


def _unit_lines(mechanism: BaseMechanism) -> list[str]:
    most = mechanism.counting.contributions
    if not mechanism.counting.user:
        return ["one point"]
    lines = [
        f"one user, at most {f'{most:,} points, all moving at once' if most > 1 else '1 point'}",
        "The guarantee is about the points that were kept, chosen without looking at places.",
    ]
    if not mechanism.neighbourhood.fixed_membership:
        lines.append(
            "One record more or less can exchange other kept records of the same user, far from any source too: that "
            "is protected like appearing, vanishing or moving anywhere, not like absence near a source."
        )
    return lines


def _publication_rows(mechanism: BaseMechanism, facts: Facts) -> list[Row]:
    domain, counting = mechanism.domain, mechanism.counting
    plural = "s" if facts["values"] > 1 else ""
    outside = "dropped" if "points outside" in counting.dropped else "counted in the nearest cell"
    bounds = ", ".join(number(b) for b in domain.bounds)
    numbers = f"{facts['values']:,} noisy whole number{plural} ({facts['mechanism']}), nothing else"
    rows = [("What is published", [numbers])]
    if counting.replaces is not None:
        lines = [f"the release with the SHA-256 {counting.replaces.digest}", f"because: {counting.replaces.reason}"]
        rows.append(("Replaces", [*lines, "An attacker can compare both: what they cost adds up."]))
    rows += [
        ("Map", _map_lines(mechanism, facts)),
        ("Bounds", [f"{bounds} (extended outwards to whole cells; points outside are {outside})"]),
    ]
    if counting.projection is not None:
        rows.append(("Way to the map", [f"one operation for all points: {counting.projection}"]))
    return rows


def _map_lines(mechanism: BaseMechanism, facts: Facts) -> list[str]:
    domain = mechanism.domain
    cells = f"{' × '.join(str(n) for n in facts['cells'])} cells of"
    size = f"{' × '.join(number(c) for c in facts['cell_size'])} {facts['unit']}"
    if domain.crs is None:
        return [f"{cells} {size}"]
    return [f"{cells} {size}, {domain.crs}", words(domain)]


def _people_rows(mechanism: BaseMechanism, facts: Facts) -> list[Row]:
    """Return the rows about the number of points, and about the records that were left out."""
    dropped = facts["dropped"]
    if facts["total_public"]:
        kept = " kept" if mechanism.counting.user else ""
        total = "" if facts["total"] is None else f"{facts['total']:,}{kept}, "
        who = f"{total}published exactly: membership is fixed, so the number hides nothing"
    elif facts["sources"] is None:
        who = "not published: rows were dropped, and how many may depend on a person"
    else:
        who = f"not published: who takes part is protected{'' if UNPAID in dropped else ' near the sources'}"
    rows = [("Number of points", [who])]
    if facts["where"] is not None:
        more = ", nor how many rows meet it" if facts["total_public"] else ""
        lines = [
            f"only those where {facts['where']}",
            f"Places are protected. What the condition asks for is not{more}.",
        ]
        rows.append(("Rows", lines))
    if mechanism.counting.user:
        rows.append(("Users", [f"Of each user at most {mechanism.counting.contributions:,} rows were kept."]))
    if "bad rows" in dropped:
        lines = ["Rows without usable coordinates, user or time were dropped. Neighbours have the same unusable rows."]
        rows.append(("Dropped rows", lines))
    if "points outside" in dropped:
        rows.append(("Dropped points", ["Points outside the bounds were dropped; the boundary is a source."]))
    if UNPAID in dropped:
        lines = ["Each person's budget paid for their records; records of people who could not pay were left out."]
        rows.append(("Budgets", lines))
    return rows


def _noise_lines(noise: list[Facts]) -> list[str]:
    first = noise[0]
    if first["std"] is None:
        return [first["law"]]
    law = f"{first['law']}, exact on the integers, standard deviation per number"
    if len(noise) == 1:
        unit = f" {first['unit']}" if "unit" in first else ""
        return [f"{law} {first['std']:.4g}{unit}"]
    lines = [f"{law}:", *(f"{each['std']:.4g} of {each['rows']}" for each in noise[:_MOST_GROUPS])]
    if len(noise) > _MOST_GROUPS:
        lines.append(f"... and {len(noise) - _MOST_GROUPS} more groups of rows")
    return lines


def _explain_step(mechanism: BaseMechanism) -> list[str]:
    """Return that a step of a stream is not all that is published about the same people."""
    if mechanism.step is None:
        return []
    return ["This is the cost of one step. The statement of the whole folder gives that of all steps together."]


def _explain_use(mechanism: BaseMechanism, facts: Facts) -> list[str]:
    lines = ["Nothing that is computed from these figures weakens the promise. Cite: "
             f"{facts['promise']}, published with deltahist."]  # fmt: skip
    lines += _explain_step(mechanism)
    if facts["determines_cells"] is not None and "unit" not in facts["noise"][0]:  # counts, not coordinates
        lines.append(
            "Quote every figure with its standard error. Do not add standard errors: ask for the sum. Single cells can "
            "be mostly noise; larger areas are known better."
        )
    return lines


def _explain_no_account(mechanism: BaseMechanism, facts: Facts) -> str:
    if UNPAID in facts["dropped"]:
        return "each person's own, which keeps the sum of all that was asked of their records"
    free = "More private copies of this release cost nothing."
    if mechanism.chain is not None and mechanism.chain.copied is None:
        free = "Releases of its chain and more private copies cost nothing more."
    elif mechanism.chain is not None:
        free = "The release that it is a copy of, and other copies of that, cost nothing more."
    return f"None. Nothing tracks the total: each further release about the same people adds its own cost. {free}"


def number(value: float, digits: int = 10) -> str:
    """Return a number as text, rounded to some digits.

    >>> number(12345.6), number(12345.6, 3), number(0.5)
    ('12,345.6', '12,300', '0.5')
    """
    return f"{float(f'{value:.{digits}g}'):,}".removesuffix(".0")


def length(value: float, unit: str, digits: int = 3) -> str:
    """Return a length with its unit as text.

    >>> length(2000, "m"), length(1, "units")
    ('2 km', '1 unit')
    """
    if unit == "m" and value >= 1000:
        return f"{number(value / 1000, digits)} km"
    return f"{number(value, digits)} {unit.removesuffix('s') if value == 1 else unit}"


def name_sources(near: Neighbourhood) -> str:
    """Return the name of the places at which people may appear or vanish."""
    return _PLACES.get(near.sources, "") if isinstance(near.sources, str) else "the source geometry"


def list_limits(near: Neighbourhood, norm: int) -> list[dict[str, float | None]]:
    """Return each limit: its ground distance (None for any move), its factor, and the same as times of ε, or of ρ."""
    domain = near.domain
    return [
        {
            "distance": None if limit.any else domain.ground(domain.length(limit.distance)),
            "factor": float(limit.factor),
            "times": float(limit.factor**norm),
        }
        for limit in near.profile
    ]


def choose_limits(near: Neighbourhood, norm: int) -> list[dict[str, float | None]]:
    """Return the limits that are named: all of a few, or some of many, the last one always."""
    limits = list_limits(near, norm)
    if len(limits) <= MOST_NAMED:
        return limits
    return [limits[round(k * (len(limits) - 1) / (MOST_NAMED - 1))] for k in range(MOST_NAMED)]


def explain_limits(near: Neighbourhood, letter: str, norm: int) -> str:
    """Return a sentence of the most that moves beyond δ, and arrivals, cost.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 9), (9,)), 1, limits=[(3, 2), ("any", 4)])
    >>> explain_limits(near, "ε", 1), explain_limits(near.with_sources("left"), "ρ", 2)
    ('a move over up to 3 units costs at most 2 ε, any move at all at most 4 ε',
     'a move over up to 3 units, or appearing within 3 units of the left end, costs at most 4 ρ; any move at all, or
     appearing anywhere, at most 16 ρ')
    """
    parts: list[str] = []
    for limit in choose_limits(near, norm):
        who, arrival = "any move at all", "or appearing anywhere"
        if limit["distance"] is not None:
            far = length(limit["distance"], near.domain.unit, 6)
            who, arrival = f"a move over up to {far}", f"or appearing within {far} of {name_sources(near)}"
        who += "" if near.fixed_membership else f", {arrival},"
        verb = "" if parts else " costs"
        parts.append(f"{who}{verb} at most {number(limit['times'] or 0, 6)} {letter}")
    many = len(near.profile) > MOST_NAMED
    lead = f"as a function of the distance, in {len(near.profile):,} steps: " if many else ""
    return lead + (", " if near.fixed_membership else "; ").join(parts)


def summarize_limits(near: Neighbourhood, letter: str, norm: int) -> str:
    """Return a few limits, or the longest of many, as the end of a line that names δ; empty without limits.

    >>> import deltahist as dh
    >>> summarize_limits(dh.Neighbourhood(dh.Domain((0, 9), (9,)), 1, limits=[(3, 2), ("any", 4)]), "ε", 1)
    ', at most 2 ε up to 3 units, at most 4 ε however far'
    """
    summary, limits = "", list_limits(near, norm)
    for limit in limits if len(limits) < MOST_NAMED else limits[-1:]:
        far = limit["distance"]
        where = "however far" if far is None else f"up to {length(far, near.domain.unit, 6)}"
        summary += f", at most {number(limit['times'] or 0, 6)} {letter} {where}"
    return summary


def list_distances(near: Neighbourhood) -> list[float]:
    """Return some multiples of δ and the distances of limits below the diameter, in ground units.

    >>> import deltahist as dh
    >>> list_distances(dh.Neighbourhood(dh.Domain((0, 9), (9,)), 1, limits=[(3, 2), ("any", 4)]))
    [1.0, 2.0, 3.0, 5.0]
    """
    limits = [limit["distance"] for limit in choose_limits(near, 1)]
    every = sorted([k * near.delta_ground for k in _MULTIPLES] + [r for r in limits if r is not None])
    return [r for r, after in zip(every, [*every[1:], math.inf], strict=True) if r < min(near.diameter, after * _LESS)]
