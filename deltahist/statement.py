"""The privacy statement of a release, as data and as text for people."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.neighbourhood import Neighbourhood
from deltahist.calibration import Root, sensitivity

if TYPE_CHECKING:
    from deltahist.release import Release

#: Distances, in δ, at which the statement says what protection is left.
MULTIPLES = (1, 2, 5, 10)


def cost_of_moves(release: Release, distance: float) -> tuple[Fraction, Fraction]:
    """What a move over at most `distance` (ground units) costs: exactly, and by the bound ⌈distance/δ⌉.

    The exact cost is the strategy's own largest Σ share |A (e_u − e_v)| over cells that far apart, in the
    units of the budget: ε for pure releases, ρ for zCDP. A path of ⌈distance/δ⌉ moves within δ gives the
    bound: that many ε, or its square times ρ.
    """
    near = release.neighbourhood
    steps = max(1, math.ceil(distance / near.delta_ground - 1e-9))
    bound = release.guarantee.times(steps)
    exact = _cost(release, near.moves_within(distance))
    limit = bound.epsilon if bound.epsilon is not None else bound.rho
    assert limit is not None
    # A move within δ is guaranteed the budget, even where the strategy's own cost is less.
    return min(exact, limit), limit


def _cost(release: Release, moves: Neighbourhood) -> Fraction:
    """Budget that a wider relation costs, from the ratio of its sensitivity to the neighbourhood's own."""
    norm = 1 if release.rho is None else 2
    own = sensitivity(release.strategy, release.neighbourhood, norm=norm)
    wide = sensitivity(release.strategy, moves, norm=norm)
    if isinstance(own, Root) and isinstance(wide, Root):
        assert release.rho is not None
        return release.rho * wide.squared / own.squared if own else Fraction(0)
    assert release.epsilon is not None
    return release.epsilon * Fraction(wide) / Fraction(own) if own else Fraction(0)


def facts(release: Release) -> dict[str, Any]:
    """Everything the statement says, JSON-ready."""
    near, domain = release.neighbourhood, release.domain
    distances = [k * near.delta_ground for k in MULTIPLES if k * near.delta_ground < near.diameter]
    protection = [_protection(release, d) for d in distances]
    protection.append(_protection(release, near.diameter))
    out: dict[str, Any] = {
        "mechanism": f"{release.strategy.name} with {release.noise} noise on whole numbers",
        "domain": domain.describe(),
        "cells": list(domain.shape),
        "cell_size": [c / (domain.scale or 1.0) for c in domain.cell],
        "unit": domain.unit,
        "neighbour_relation": _relation(release),
        "delta": near.delta_ground,
        "delta_cells": list(near.cells),
        "delta_guaranteed": near.delta_ground - max(domain.step) / (domain.scale or 1.0),
        "sources": near.describe()["sources"],
        "unit_of_privacy": "user" if release.contributions > 1 else "point",
        "points_per_user": release.contributions,
        "epsilon": None if release.epsilon is None else float(release.epsilon),
        "rho": None if release.rho is None else float(release.rho),
        "protection": protection,
        "total_public": release.total is not None,
        "total": release.total,
        "dropped": list(release.dropped),
        "noise": [
            {"rows": group.name, "law": law.kind, "std": math.sqrt(law.variance())}
            for group, law in zip(release.strategy.groups, release.laws, strict=True)
        ],
        "determines_cells": _determined(release),
        "publishable": release.publishable,
        "values": len(release.values),
    }
    if release.rho is not None:
        out["epsilon_at_1e-6"] = release.guarantee.approximate(1e-6)
    if not near.fixed_membership:
        anywhere = _cost(release, _anywhere(near))
        out["appear_anywhere"] = float(anywhere)
    return out


def _determined(release: Release) -> bool:
    known = release.strategy.determines_cells
    if known is None:
        return bool(np.linalg.matrix_rank(release.strategy.matrix().toarray()) == release.domain.size)
    return known


def _anywhere(near: Neighbourhood) -> Neighbourhood:
    """The standard relation: entities appear, vanish and move anywhere."""
    return Neighbourhood(near.domain, near.diameter, "boundary")


def _protection(release: Release, distance: float) -> dict[str, float]:
    exact, bound = cost_of_moves(release, distance)
    return {
        "distance": distance,
        "deltas": distance / release.neighbourhood.delta_ground,
        "exact": float(exact),
        "bound": float(bound),
    }


def protection_curve(release: Release, points: int = 60) -> dict[str, NDArray[np.float64]]:
    """Cost against distance, exact and bound, from a fraction of δ to the diameter."""
    near = release.neighbourhood
    distance = np.geomspace(max(near.delta_ground / 4, 2 * max(near.domain.step)), near.diameter, points)
    pairs = [cost_of_moves(release, float(d)) for d in distance]
    return {
        "distance": distance,
        "exact": np.array([float(e) for e, _ in pairs]),
        "bound": np.array([float(b) for _, b in pairs]),
    }


def _relation(release: Release) -> str:
    near = release.neighbourhood
    who = "one point" if release.contributions == 1 else f"all points (at most {release.contributions}) of one user"
    move = f"{who} may be anywhere within {_number(near.delta_ground)} {near.domain.unit} of where they are recorded"
    if release.contributions == 1:
        move = move.replace("where they are", "where it is")
    if near.fixed_membership:
        return f"{move}; who is in the data is fixed"
    place = {"boundary": "the domain's boundary", "left": "the left end", "right": "the right end"}
    named = place.get(near.sources, "") if isinstance(near.sources, str) else "the source geometry"
    return f"{move}, or may be absent if within that distance of {named}"


def _number(value: float) -> str:
    return f"{value:,.6g}"


def statement(release: Release) -> str:
    """The privacy statement for people, plain text."""
    f = facts(release)
    near, unit = release.neighbourhood, f["unit"]
    letter = "ε" if release.rho is None else "ρ"
    budget = release.epsilon if release.rho is None else release.rho
    assert budget is not None
    cells = " × ".join(str(n) for n in f["cells"])
    size = " × ".join(_number(c) for c in f["cell_size"])
    lines = [
        "Privacy statement",
        "=================",
        f"What is published   {f['values']:,} noisy whole numbers ({f['mechanism']})",
        f"Map                 {cells} cells of {size} {unit}" + (f", {near.domain.crs}" if near.domain.crs else ""),
        f"Bounds              {', '.join(_number(b) for b in near.domain.bounds)}"
        " (points outside are counted in the nearest cell)",
        f"Neighbours          {f['neighbour_relation']}",
        f"δ                   {_number(f['delta'])} {unit} = {' × '.join(_number(c) for c in f['delta_cells'])} cells"
        f" (for raw coordinates {f['delta_guaranteed']:.10g}: one lattice step less)",
        f"Unit of privacy     {'one user, at most ' + str(release.contributions) + ' points, all moving at once' if release.contributions > 1 else 'one point'}",
    ]
    if release.rho is None:
        lines.append(
            f"Guarantee           ε = {_number(float(budget))} (pure): no conclusion from the release is more than "
            f"e^ε = {math.exp(float(budget)):.3g} times likelier for one of two neighbours than for the other"
        )
    else:
        lines.append(
            f"Guarantee           ρ = {_number(float(budget))} zero-concentrated, which is "
            f"ε = {f['epsilon_at_1e-6']:.3g} but for a probability of 10⁻⁶"
        )
    lines.append("Protection by distance (a move over r; the further, the weaker):")
    lines.append(f"  {'r':>14}  {'in δ':>8}  {letter + ' exact':>10}  {letter + ' bound':>10}")
    for i, p in enumerate(f["protection"]):
        last = "  the domain's diameter: what holds when anything may move anywhere" if i == len(f["protection"]) - 1 else ""
        lines.append(
            f"  {_number(p['distance']) + ' ' + unit:>14}  {p['deltas']:>8.4g}  {p['exact']:>10.4g}  {p['bound']:>10.4g}{last}"
        )
    if "appear_anywhere" in f:
        lines.append(f"  appearing or vanishing anywhere costs at most {letter} = {f['appear_anywhere']:.4g}")
    if release.total is not None:
        lines.append(f"Number of points    {release.total:,}, published exactly: membership is fixed, so it hides nothing")
    elif near.fixed_membership:
        lines.append("Number of points    not published: rows were dropped, and how many could depend on a person")
    else:
        lines.append("Number of points    not published: who takes part is protected near the sources")
    if "bad rows" in release.dropped:
        lines.append(
            "Dropped rows        rows with unusable coordinates were dropped (--drop-bad-rows): the guarantee is for "
            "data sets in which the same rows are unusable, and n is therefore not given"
        )
    if "points outside" in release.dropped:
        lines.append("Dropped rows        points outside the bounds were dropped; the boundary is a source")
    noise = f["noise"]
    if len(noise) == 1:
        lines.append(f"Noise               {noise[0]['law']}, standard deviation {noise[0]['std']:.4g} per number, exact on integers")
    else:
        lines.append(f"Noise               {noise[0]['law']}, exact on integers; standard deviation per number:")
        lines += [f"  {n['std']:>10.4g}  {n['rows']}" for n in noise[:12]]
        if len(noise) > 12:
            lines.append(f"  ... and {len(noise) - 12} more groups")
    if not f["determines_cells"]:
        lines.append("Resolution          the numbers do not determine every cell; answers state what is unresolved")
    lines.append(
        "May be published    "
        + ("yes" if release.publishable else "NO: not for publication, the noise came from a seeded generator")
    )
    return "\n".join(lines)
