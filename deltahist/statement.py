"""The privacy statement of a release, as data and as text for people."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from deltahist.release import Release
    from deltahist.sorted_points import SortedRelease

#: Distances, in δ, at which the statement says what protection is left.
MULTIPLES = (1, 2, 5, 10)


def cost_of_moves(release: Release | SortedRelease, distance: float) -> tuple[Fraction, Fraction]:
    """What a move over at most `distance` (ground units) costs: exactly, and by the bound ⌈distance/δ⌉.

    The exact cost is the release's own (`cost_under`), in the units of the budget: ε for pure releases, ρ for
    zCDP. A path of ⌈distance/δ⌉ moves within δ gives the
    bound: that many ε, or its square times ρ.
    """
    near = release.neighbourhood
    steps = max(1, math.ceil(distance / near.delta_ground - 1e-9))
    bound = release.guarantee.times(steps)
    exact = release.cost_under(near.moves_within(distance))
    limit = bound.epsilon if bound.epsilon is not None else bound.rho
    assert limit is not None
    # A move within δ is guaranteed the budget, even where the strategy's own cost is less.
    return min(exact, limit), limit


def facts(release: Release | SortedRelease) -> dict[str, Any]:
    """Everything the statement says, JSON-ready."""
    near, domain = release.neighbourhood, release.domain
    distances = [k * near.delta_ground for k in MULTIPLES if k * near.delta_ground < near.diameter]
    protection = [_protection(release, d) for d in distances]
    protection.append(_protection(release, near.diameter))
    steps_lost = 1 if near.sources is None or isinstance(near.sources, str) else 2
    counting = release.counting
    torn = 0.0 if counting.projection is None else counting.projection.jump
    out: dict[str, Any] = {
        "mechanism": f"{release.measured} with {release.noise} noise on whole numbers",
        "domain": domain.describe(),
        "cells": list(domain.shape),
        "cell_size": [c / (domain.scale or 1.0) for c in domain.cell],
        "unit": domain.unit,
        "neighbour_relation": _relation(release),
        "delta": near.delta_ground,
        "delta_cells": list(near.cells),
        "lattice_steps_lost": steps_lost,
        # A geometry's vertices are rounded to the lattice as well as the points.
        "delta_guaranteed": near.delta_ground
        - (steps_lost * max(domain.step) + torn) / (domain.scale or 1.0),
        "projection": None if counting.projection is None else counting.projection.describe(),
        "sources": near.describe()["sources"],
        "unit_of_privacy": counting.unit,
        "points_per_user": counting.contributions if counting.user else None,
        "epsilon": None if release.epsilon is None else float(release.epsilon),
        "rho": None if release.rho is None else float(release.rho),
        "protection": protection,
        "total_public": release.total is not None,
        "total": release.total,
        "dropped": list(counting.dropped),
        "noise": release.noise_rows(),
        "determines_cells": release.determines_cells,
        "publishable": release.publishable,
        "values": len(release.values),
    }
    if release.rho is not None:
        out["epsilon_at_1e-6"] = release.approximate(1e-6)
    if not near.fixed_membership:
        anywhere = release.cost_under(near.anywhere())
        out["appear_anywhere"] = float(anywhere)
    return out


def _protection(release: Release | SortedRelease, distance: float) -> dict[str, float]:
    exact, bound = cost_of_moves(release, distance)
    return {
        "distance": distance,
        "deltas": distance / release.neighbourhood.delta_ground,
        "exact": float(exact),
        "bound": float(bound),
    }


def protection_curve(release: Release | SortedRelease, points: int = 60) -> dict[str, NDArray[np.float64]]:
    """Cost against distance, exact and bound, from a fraction of δ to the diameter."""
    near = release.neighbourhood
    distance = np.geomspace(max(near.delta_ground / 4, 2 * max(near.domain.step)), near.diameter, points)
    pairs = [cost_of_moves(release, float(d)) for d in distance]
    return {
        "distance": distance,
        "exact": np.array([float(e) for e, _ in pairs]),
        "bound": np.array([float(b) for _, b in pairs]),
    }


def _relation(release: Release | SortedRelease) -> str:
    near = release.neighbourhood
    counting = release.counting
    who, recorded = "one point", "where it is recorded"
    if counting.user:
        who = f"all kept points (at most {counting.contributions}) of one user"
        recorded = "where they are recorded"
    if counting.user and counting.contributions == 1:
        who, recorded = "the one kept point of one user", "where it is recorded"
    move = f"{who} may be anywhere within {_number(near.delta_ground)} {near.domain.unit} of {recorded}"
    if near.fixed_membership:
        return f"{move}; who is in the data is fixed"
    place = {"boundary": "the domain's boundary", "left": "the left end", "right": "the right end"}
    named = place.get(near.sources, "") if isinstance(near.sources, str) else "the source geometry"
    return f"{move}, or may be absent if within that distance of {named}"


def _number(value: float, digits: int = 10) -> str:
    return f"{float(f'{value:.{digits}g}'):,}".removesuffix(".0")


def statement(release: Release | SortedRelease) -> str:
    """The privacy statement for people, plain text."""
    f = facts(release)
    rows = [*_what(release, f), *_promise(release, f), *_protection_table(release, f), *_membership(release)]
    rows += _noise(f)
    if not f["determines_cells"]:
        rows.append(
            ("Resolution", "the numbers do not determine every cell; answers state what is unresolved"),
        )
    why_not = "NO: not for publication, the noise came from a seeded generator"
    rows.append(("May be published", "yes" if release.publishable else why_not))
    lines = [f"{label:<18}  {text}" if label else f"  {text}" for label, text in rows]
    return "\n".join(["Privacy statement", "=================", *lines])


#: A label and its text; without a label the text goes on from the row above.
_Row = tuple[str, str]


def _what(release: Release | SortedRelease, f: dict[str, Any]) -> list[_Row]:
    domain, unit = release.domain, f["unit"]
    cells = " × ".join(str(n) for n in f["cells"])
    size = " × ".join(_number(c) for c in f["cell_size"])
    bounds = ", ".join(_number(b) for b in domain.bounds)
    counting = release.counting
    outside = "dropped" if "points outside" in counting.dropped else "counted in the nearest cell"
    if domain.crs and "points outside" not in counting.dropped:
        outside += ", δ for them being a length on the map"
    rows = [
        ("What is published", f"{f['values']:,} noisy whole numbers ({f['mechanism']})"),
        ("Map", f"{cells} cells of {size} {unit}" + (f", {domain.crs}" if domain.crs else "")),
        ("Bounds", f"{bounds} (extended outwards to whole cells; points outside are {outside})"),
    ]
    if counting.projection is not None:
        rows.append(("Way to the map", f"one operation for all points: {counting.projection.name}"))
        if counting.projection.jump:
            length = counting.projection.jump / (domain.scale or 1.0)
            rows.append(
                (
                    "",
                    f"it tears near points up to {_number(length, 3)} {unit} apart, as measured: so much less is δ",
                )
            )
    return rows


def _promise(release: Release | SortedRelease, f: dict[str, Any]) -> list[_Row]:
    cells = " × ".join(_number(c) for c in f["delta_cells"])
    lost = "one lattice step" if f["lattice_steps_lost"] == 1 else "two lattice steps"
    if f["projection"] is not None and f["projection"]["jump"]:
        lost += " and the way to the map"
    exact_delta = f"for raw coordinates {f['delta_guaranteed']:.10g}: {lost} less"
    counting = release.counting
    unit = "one point"
    if counting.user:
        several = counting.contributions > 1
        points = f"{counting.contributions:,} points, all moving at once" if several else "1 point"
        unit = f"one user, at most {points}"
    rows = [
        ("Neighbours", f["neighbour_relation"]),
        ("δ", f"{_number(f['delta'])} {f['unit']} = {cells} cells ({exact_delta})"),
        ("Unit of privacy", unit),
        *_bounded(release),
    ]
    if release.epsilon is not None:
        ratio = math.exp(min(float(release.epsilon), 700.0))
        rows.append(
            (
                "Guarantee",
                f"ε = {_number(float(release.epsilon))} (pure): whatever is concluded from the release is at most "
                f"e^ε = {ratio:.3g} times likelier",
            )
        )
        rows.append(("", "under one of two neighbouring data sets than under the other"))
    else:
        assert release.rho is not None
        rows.append(
            (
                "Guarantee",
                f"ρ = {_number(float(release.rho))} zero-concentrated, which is ε = {f['epsilon_at_1e-6']:.3g} "
                "but for a probability of 10⁻⁶",
            )
        )
    return rows


def _bounded(release: Release | SortedRelease) -> list[_Row]:
    """What bounding users means for the guarantee."""
    if not release.counting.user:
        return []
    rows = [
        (
            "",
            "the guarantee is about the points that were kept; which ones is chosen without looking at places",
        )
    ]
    if not release.neighbourhood.fixed_membership:
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


def _protection_table(release: Release | SortedRelease, f: dict[str, Any]) -> list[_Row]:
    letter = "ε" if release.rho is None else "ρ"
    rows = [
        ("Protection by distance", "what a move over r costs: the further, the weaker the protection"),
        ("", f"{'r':>14}  {'in δ':>8}  {letter + ' exact':>10}  {letter + ' bound':>10}"),
    ]
    for p in f["protection"]:
        length = f"{_number(p['distance'], 6)} {f['unit']}"
        rows.append(("", f"{length:>14}  {p['deltas']:>8.4g}  {p['exact']:>10.4g}  {p['bound']:>10.4g}"))
    rows[-1] = ("", rows[-1][1] + "  the domain's diameter: any move at all")
    if "appear_anywhere" in f:
        rows.append(
            (
                "",
                f"appearing, vanishing or moving anywhere costs {letter} = {f['appear_anywhere']:.4g}",
            )
        )
    return rows


def _membership(release: Release | SortedRelease) -> list[_Row]:
    if release.total is not None:
        who = f"{release.total:,}, published exactly: membership is fixed, so the number hides nothing"
    elif release.neighbourhood.fixed_membership:
        who = "not published: rows were dropped, and how many may depend on a person"
    else:
        who = "not published: who takes part is protected near the sources"
    rows = [("Number of points", who)]
    dropped = release.counting.dropped
    if "bad rows" in dropped:
        rows.append(
            (
                "Dropped rows",
                "rows with unusable coordinates were dropped (--drop-bad-rows): the guarantee is for data",
            )
        )
        rows.append(
            ("", "sets in which the same rows are unusable; the number of points is therefore not given")
        )
    if "points outside" in dropped:
        rows.append(("Dropped points", "points outside the bounds were dropped; the boundary is a source"))
    return rows


def _noise(f: dict[str, Any]) -> list[_Row]:
    noise = f["noise"]
    law = f"{noise[0]['law']}, exact on the integers, standard deviation per number"
    if len(noise) == 1:
        unit = f" {noise[0]['unit']}" if "unit" in noise[0] else ""
        return [("Noise", f"{law} {noise[0]['std']:.4g}{unit}")]
    rows = [("Noise", f"{law}:"), *(("", f"{n['std']:>10.4g}  {n['rows']}") for n in noise[:12])]
    if len(noise) > 12:
        rows.append(("", f"... and {len(noise) - 12} more groups of rows"))
    return rows
