"""The privacy statement, as data and as text for people: what a mechanism promises, and what a release adds to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deltahist.domain import Domain
from deltahist.domain.counting import UNPAID
from deltahist.domain.crs import scales, unit_of, words
from deltahist.mechanisms.limits import distances_told, limit_facts, limits_in_words, number, place_of_sources
from deltahist.mechanisms.step import Step

if TYPE_CHECKING:
    from deltahist.mechanisms.base import BaseMechanism


def facts(promise: BaseMechanism) -> dict[str, Any]:
    """Everything the statement says, JSON-ready; what only a release knows (its total) is None."""
    near, domain, guarantee = promise.neighbourhood, promise.domain, promise.guarantee
    norm = 1 if guarantee.rho is None else 2
    protection = [_protection(promise, d) for d in [*distances_told(near), near.diameter]]
    steps_lost = 1 if near.sources is None or isinstance(near.sources, str) else 2
    counting = promise.counting
    torn = 0.0 if counting.projection is None else counting.projection.jump
    out: dict[str, Any] = {
        "mechanism": promise.words,
        "domain": domain.describe(),
        "cells": list(domain.shape),
        "cell_size": [domain.ground(c) for c in domain.cell],
        "unit": domain.unit,
        "neighbour_relation": _relation(promise),
        "delta": near.delta_ground,
        "delta_cells": list(near.delta_cells),
        "lattice_steps_lost": steps_lost,
        # A geometry's vertices are rounded to the lattice as well as the points.
        "delta_guaranteed": near.delta_ground - domain.ground(steps_lost * max(domain.step) + torn),
        "projection": None if counting.projection is None else counting.projection.describe(),
        "sources": near.describe()["sources"],
        "unit_of_privacy": counting.unit,
        "points_per_user": counting.contributions if counting.user else None,
        "epsilon": None if guarantee.epsilon is None else float(guarantee.epsilon),
        "rho": None if guarantee.rho is None else float(guarantee.rho),
        "limits": limit_facts(near, norm),
        "protection": protection,
        "total_public": promise.total_known,
        "total": None,
        "dropped": list(counting.dropped),
        "where": counting.where,
        "noise": promise.noise_rows(),
        "determines_cells": promise.determines_cells,
        "digest": None,
        "publishable": None,
        "may_be_published": None,
        "account": None,
        "kept_by": None,
        "weak_protection": promise.weakness,
        "values": promise.size,
    }
    if promise.chain is not None:
        out["chain"] = promise.chain.describe()
    if promise.step is not None:
        out["step"] = promise.step.label
        out["window"] = promise.step.describe()
    if guarantee.probability:
        out["probability"] = float(guarantee.probability)
    if guarantee.rho is not None:
        out["epsilon_at_1e-6"] = promise.approximate(1e-6)
    if not near.fixed_membership:
        anywhere = promise.cost_under(near.anywhere())
        out["appear_anywhere"] = float(anywhere)
    return out


def _protection(promise: BaseMechanism, distance: float) -> dict[str, float | None]:
    exact, bound = promise.cost_within(distance)
    return {
        "distance": distance,
        "deltas": distance / promise.neighbourhood.delta_ground,
        "exact": None if exact == math.inf else float(exact),
        "bound": None if bound == math.inf else float(bound),
    }


def _relation(promise: BaseMechanism) -> str:
    near = promise.neighbourhood
    counting = promise.counting
    who, recorded = "one point", "where it is recorded"
    if counting.user:
        who = f"all kept points (at most {counting.contributions}) of one user"
        recorded = "where they are recorded"
    if counting.user and counting.contributions == 1:
        who, recorded = "the one kept point of one user", "where it is recorded"
    move = f"{who} may be anywhere within {number(near.delta_ground)} {near.domain.unit} of {recorded}"
    if near.fixed_membership:
        return f"{move}; who is in the data is fixed"
    return f"{move}, or may be absent if within that distance of {place_of_sources(near)}"


def statement(promise: BaseMechanism, more: dict[str, Any] | None = None) -> str:
    """The privacy statement for people, plain text; `more` is what a release adds to the facts."""
    f = facts(promise) | (more or {})
    rows = parameters(promise, f, _protection_table(promise, f))
    if f["may_be_published"] is not None:
        rows.append(("May be published", f["may_be_published"]))
    lines = [f"{label:<18}  {text}" if label else f"  {text}" for label, text in rows]
    weak = [] if f["weak_protection"] is None else [f"WEAK PROTECTION: {f['weak_protection']}", ""]
    return "\n".join([*weak, "Privacy statement", "=================", *lines])


def judgement(promise: BaseMechanism, publishable: bool) -> str:
    """Whether a release may be published: "yes", "no: ..." or "only if ...", with the reason."""
    if not publishable:
        return "no: noise from a seeded generator, or numbers that no publisher of this toolkit drew"
    weak = promise.weakness
    return "yes" if weak is None else f"only if everybody in the data accepts weak protection: {weak}"


#: A label and its text; without a label the text goes on from the row above.
Row = tuple[str, str]


def parameters(promise: BaseMechanism, f: dict[str, Any], table: Sequence[Row] = ()) -> list[Row]:
    """What was published and promised, row by row; `table` is how the protection by distance is shown among them."""
    rows = [*_what(promise, f), *_promise(promise, f), *table, *_membership(f), *_noise(f)]
    if f["determines_cells"] is False:
        rows.append(
            ("Resolution", "the numbers do not determine every cell; answers state what is unresolved"),
        )
    if f["may_be_published"] is not None:  # a release's; a mechanism has not been paid for
        alone = (
            "none: nobody keeps the sum; every further release about the same people adds its own to this one"
        )
        if UNPAID in f["dropped"]:
            alone = "one of each person, which keeps the sum of all that was asked of their records"
        elif promise.chain is not None and promise.chain.copied is not None:
            alone += ", but the release that it is a copy of, and other copies of that"
        else:
            alone += f", but {'those of its chain and ' if promise.chain is not None else ''}more private copies of it"
        rows.append(("Account", f["kept_by"] or alone))
        if f["digest"] is not None:
            rows.append(("SHA-256", f["digest"]))
    return rows


def joined(rows: list[Row]) -> list[tuple[str, list[str]]]:
    """Each label with its lines; a row without a label goes on from the one above."""
    out: list[tuple[str, list[str]]] = []
    for label, text in rows:
        if label:
            out.append((label, []))
        out[-1][1].append(text)
    return out


def _what(promise: BaseMechanism, f: dict[str, Any]) -> list[Row]:
    domain, unit = promise.domain, f["unit"]
    cells = " × ".join(str(n) for n in f["cells"])
    size = " × ".join(number(c) for c in f["cell_size"]) + f" {unit}"
    bounds = ", ".join(number(b) for b in domain.bounds)
    counting = promise.counting
    outside = "dropped" if "points outside" in counting.dropped else "counted in the nearest cell"
    if domain.crs and "points outside" not in counting.dropped:
        outside += ", δ for them being a length on the map"
    rows = [
        (
            "What is published",
            f"{f['values']:,} noisy whole number{'s' if f['values'] > 1 else ''} ({f['mechanism']})",
        ),
        *_map(domain, f"{cells} cells of", size),
        ("Bounds", f"{bounds} (extended outwards to whole cells; points outside are {outside})"),
    ]
    if counting.projection is not None:
        rows.append(("Way to the map", f"one operation for all points: {counting.projection.name}"))
        if counting.projection.jump:
            length = domain.ground(counting.projection.jump)
            rows.append(
                (
                    "",
                    f"it tears near points up to {number(length, 3)} {unit} apart, as measured: so much less is δ",
                )
            )
    return rows


def _map(domain: Domain, cells: str, size: str) -> list[Row]:
    """How large cells are, and where: on the ground, or on a grid of the map."""
    if domain.crs is None:
        return [("Map", f"{cells} {size}")]
    about = ("", words(domain))
    if domain.grid is None:
        return [("Map", f"{cells} {size}, {domain.crs}"), about]
    side = number(domain.grid)
    least, largest = (number(domain.grid / scale, 5) for scale in reversed(scales(domain)))
    return [
        (
            "Map",
            f"{cells} {side} × {side} {unit_of(domain.crs)} of the map, {domain.crs}, on the grid of their multiples",
        ),
        ("", f"on the ground a side is {least} to {largest} m: ground metres are in δ alone"),
        about,
    ]


def _promise(promise: BaseMechanism, f: dict[str, Any]) -> list[Row]:
    cells = " × ".join(number(c) for c in f["delta_cells"])
    lost = "one lattice step" if f["lattice_steps_lost"] == 1 else "two lattice steps"
    if f["projection"] is not None and f["projection"]["jump"]:
        lost += " and the way to the map"
    exact_delta = f"for raw coordinates {f['delta_guaranteed']:.10g}: {lost} less"
    counting = promise.counting
    unit = "one point"
    if counting.user:
        several = counting.contributions > 1
        points = f"{counting.contributions:,} points, all moving at once" if several else "1 point"
        unit = f"one user, at most {points}"
    rows = [
        ("Neighbours", f["neighbour_relation"]),
        ("δ", f"{number(f['delta'])} {f['unit']} = {cells} cells ({exact_delta})"),
        ("Unit of privacy", unit),
        *_bounded(promise),
    ]
    if f["epsilon"] is not None:
        ratio = math.exp(min(f["epsilon"], 700.0))
        kind = f"but for a probability of {f['probability']:g}" if "probability" in f else "(pure)"
        rows.append(
            (
                "Guarantee",
                f"ε = {number(f['epsilon'])} {kind}: whatever is concluded from the release is at most "
                f"e^ε = {ratio:.3g} times likelier",
            )
        )
        rows.append(("", "under one of two neighbouring data sets than under the other"))
    else:
        rows.append(
            (
                "Guarantee",
                f"ρ = {number(f['rho'])} zero-concentrated, which is ε = {f['epsilon_at_1e-6']:.3g} "
                "but for a probability of 10⁻⁶",
            )
        )
    if f["limits"]:
        letter, norm = ("ε", 1) if f["rho"] is None else ("ρ", 2)
        rows.append(("Limits", limits_in_words(promise.neighbourhood, letter, norm)))
    if promise.step is not None:
        rows += [
            ("Stream", f"step {promise.step.label} of a stream: {promise.step.words};"),
            (
                "",
                f"that is the guarantee of all releases for data that differ within {_steps(promise.step)};",
            ),
            ("", f"for data that differ in more it is, at most, {'; '.join(promise.step.beyond)}"),
        ]
    if promise.chain is not None:
        rows.append(("Chain", promise.chain.words("ε" if f["rho"] is None else "ρ")))
    return rows


def _steps(step: Step) -> str:
    return "one step" if step.window == 1 else f"{step.window:,} steps in a row"


def _bounded(promise: BaseMechanism) -> list[Row]:
    """What bounding users means for the guarantee."""
    if not promise.counting.user:
        return []
    rows = [
        (
            "",
            "the guarantee is about the points that were kept; which ones is chosen without looking at places",
        )
    ]
    if not promise.neighbourhood.fixed_membership:
        rows += [
            (
                "",
                "a record more or less of a user can exchange others that are kept, far from any source too:",
            ),
            (
                "",
                "that is protected like appearing, vanishing or moving anywhere, not like absence near a source",
            ),
        ]
    return rows


def _protection_table(promise: BaseMechanism, f: dict[str, Any]) -> list[Row]:
    letter = "ε" if f["rho"] is None else "ρ"
    bound = "promised" if f["limits"] else "bound"
    rows = [
        ("Protection by distance", "what a move over r costs: the further, the weaker the protection"),
        ("", f"{'r':>14}  {'in δ':>8}  {letter + ' exact':>10}  {letter + ' ' + bound:>10}"),
    ]
    for p in f["protection"]:
        length = f"{number(p['distance'], 6)} {f['unit']}"
        exact, bound = ("nothing" if p[k] is None else f"{p[k]:.4g}" for k in ("exact", "bound"))
        rows.append(("", f"{length:>14}  {p['deltas']:>8.4g}  {exact:>10}  {bound:>10}"))
    rows[-1] = ("", rows[-1][1] + "  the domain's diameter: any move at all")
    if "appear_anywhere" in f:
        rows.append(
            (
                "",
                f"appearing, vanishing or moving anywhere costs {letter} = {f['appear_anywhere']:.4g}",
            )
        )
    return rows


def _membership(f: dict[str, Any]) -> list[Row]:
    if f["total_public"]:
        number = "" if f["total"] is None else f"{f['total']:,}, "
        who = f"{number}published exactly: membership is fixed, so the number hides nothing"
    elif f["sources"] is None:
        who = "not published: rows were dropped, and how many may depend on a person"
    elif UNPAID in f["dropped"]:
        who = "not published: who takes part is protected"
    else:
        who = "not published: who takes part is protected near the sources"
    rows = [("Number of points", who), *_condition(f)]
    if "bad rows" in f["dropped"]:
        rows.append(
            (
                "Dropped rows",
                "rows without usable coordinates, user or time were dropped: the guarantee is for data",
            )
        )
        rows.append(
            ("", "sets in which the same rows are unusable; the number of points is therefore not given")
        )
    if "points outside" in f["dropped"]:
        rows.append(("Dropped points", "points outside the bounds were dropped; the boundary is a source"))
    if UNPAID in f["dropped"]:
        rows.append(
            ("Budgets", "each person has one, from which each of their records was paid for as stated above;")
        )
        rows.append(("", "records of people who could not pay were left out"))
    return rows


def _condition(f: dict[str, Any]) -> list[Row]:
    """What choosing rows by a condition means for the guarantee."""
    if f["where"] is None:
        return []
    return [
        ("Rows", f"only those where {f['where']}"),
        ("", "which rows these are is taken as fixed, wherever their points lie: places are protected,"),
        (
            "",
            "what the condition asks for is not"
            + (", nor how many rows meet it" if f["total_public"] else ""),
        ),
    ]


def _noise(f: dict[str, Any]) -> list[Row]:
    noise = f["noise"]
    if noise[0]["std"] is None:
        return [("Noise", noise[0]["law"])]
    law = f"{noise[0]['law']}, exact on the integers, standard deviation per number"
    if len(noise) == 1:
        unit = f" {noise[0]['unit']}" if "unit" in noise[0] else ""
        return [("Noise", f"{law} {noise[0]['std']:.4g}{unit}")]
    rows = [("Noise", f"{law}:"), *(("", f"{n['std']:>10.4g}  {n['rows']}") for n in noise[:12])]
    if len(noise) > 12:
        rows.append(("", f"... and {len(noise) - 12} more groups of rows"))
    return rows
