"""What is promised beyond δ, in words and as facts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from deltahist.neighbourhood import Neighbourhood

#: Limits that are named one by one; of more of them a few are.
_NAMED = 4
#: Distances, in δ, at which the statement says what protection is left.
_MULTIPLES = (1, 2, 5, 10)
#: Distances that differ by less are one.
_LESS = 1 - 1e-6
_PLACES = {"boundary": "the domain's boundary", "left": "the left end", "right": "the right end"}


def number(value: float, digits: int = 10) -> str:
    """A number for people, in at most so many digits."""
    return f"{float(f'{value:.{digits}g}'):,}".removesuffix(".0")


def length(value: float, unit: str, digits: int = 3) -> str:
    """A length with its unit, for people.

    >>> length(2000, "m"), length(1, "units")
    ('2 km', '1 unit')
    """
    if unit == "m" and value >= 1000:
        return f"{number(value / 1000, digits)} km"
    return f"{number(value, digits)} {unit.removesuffix('s') if value == 1 else unit}"


def place_of_sources(near: Neighbourhood) -> str:
    """Where people may appear or vanish, for people."""
    return _PLACES.get(near.sources, "") if isinstance(near.sources, str) else "the source geometry"


def limit_facts(near: Neighbourhood, norm: int) -> list[dict[str, float | None]]:
    """Each limit: its distance in ground units, None for any move; its factor; how many times ε, or ρ, that is."""
    domain = near.domain
    return [
        {
            "distance": None if limit.any else domain.ground(domain.length(limit.distance)),
            "factor": float(limit.factor),
            "times": float(limit.factor**norm),
        }
        for limit in near.profile
    ]


def told(near: Neighbourhood, norm: int) -> list[dict[str, float | None]]:
    """The limits that are named: all of a few, or some of many, the last one always."""
    limits = limit_facts(near, norm)
    if len(limits) <= _NAMED:
        return limits
    return [limits[round(k * (len(limits) - 1) / (_NAMED - 1))] for k in range(_NAMED)]


def main_limits(near: Neighbourhood, norm: int) -> list[dict[str, float | None]]:
    """The limits that fit into a line: all of a few, or the longest."""
    limits = limit_facts(near, norm)
    return limits if len(limits) < _NAMED else limits[-1:]


def limits_in_words(near: Neighbourhood, letter: str, norm: int) -> str:
    """What moves beyond δ, and arrivals, cost at most.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 9), (9,)), 1, limits=[(3, 2), ("any", 4)])
    >>> limits_in_words(near, "ε", 1), limits_in_words(near.with_sources("left"), "ρ", 2)
    ('a move over up to 3 units costs at most 2 ε, any move at all at most 4 ε',
     'a move over up to 3 units, or appearing within 3 units of the left end, costs at most 4 ρ; any move at all, or
     appearing anywhere, at most 16 ρ')
    """
    unit, there = near.domain.unit, place_of_sources(near)
    parts: list[str] = []
    for limit in told(near, norm):
        far, times = limit["distance"], f"at most {number(limit['times'] or 0, 6)} {letter}"
        if far is None:
            who, arrival = "any move at all", "or appearing anywhere"
        else:
            who = f"a move over up to {length(far, unit, 6)}"
            arrival = f"or appearing within {length(far, unit, 6)} of {there}"
        who += "" if near.fixed_membership else f", {arrival},"
        parts.append(f"{who} {times}" if parts else f"{who} costs {times}")
    lead = "" if len(near.profile) <= _NAMED else f"as a function of the distance, in {len(near.profile):,} steps: "
    return lead + (", " if near.fixed_membership else "; ").join(parts)


def limits_in_short(near: Neighbourhood, letter: str, norm: int) -> str:
    """The longest limit, and those before it if there are few, for a line that says δ already; empty if there is none.

    >>> import deltahist as dh
    >>> limits_in_short(dh.Neighbourhood(dh.Domain((0, 9), (9,)), 1, limits=[(3, 2), ("any", 4)]), "ε", 1)
    ', at most 2 ε up to 3 units, at most 4 ε however far'
    """
    out = ""
    for limit in main_limits(near, norm):
        far = limit["distance"]
        where = "however far" if far is None else f"up to {length(far, near.domain.unit, 6)}"
        out += f", at most {number(limit['times'] or 0, 6)} {letter} {where}"
    return out


def factor_promised(near: Neighbourhood, distance: float) -> Fraction:
    """Times the budget that a move over a distance (ground units) costs at most, directly or as several moves on the
    way, each within δ or a limit.

    >>> import deltahist as dh
    >>> near = dh.Neighbourhood(dh.Domain((0, 90), (90,)), 1, limits=[(10, 2), ("any", 8)])
    >>> [int(factor_promised(near, r)) for r in (1, 2, 10, 11, 19, 30, 80)]
    [1, 2, 2, 3, 4, 6, 8]
    """
    direct = near.factor_within(distance)
    few = near.profile if len(near.profile) < _NAMED else ()
    lengths = [(near.steps_of(limit.distance), limit.factor) for limit in few if not limit.any]
    on_the_way = max(Fraction(1), _covered(near.steps_of(distance), lengths[::-1], near.radius))
    return on_the_way if direct is None else min(direct, on_the_way)


def _covered(distance: int, lengths: Sequence[tuple[int, Fraction]], delta: int) -> Fraction:
    """The least sum of factors of moves that are as long together as a distance, all in whole lattice steps.

    The longest lengths come first. Such moves there are: a straight line between two cells may be cut anywhere, and
    what cells its parts lie in are no further apart than the parts are long.
    """
    if not lengths:
        return Fraction(max(0, -(-distance // delta)))
    (far, factor), *rest = lengths
    most = max(0, -(-distance // far))
    return min(n * factor + _covered(distance - n * far, rest, delta) for n in range(most + 1))


def distances_of(near: Neighbourhood) -> list[float]:
    """Lengths (ground units) up to which limits that are named hold, but for any move."""
    return [far for limit in told(near, 1) if (far := limit["distance"]) is not None and math.isfinite(far)]


def distances_told(near: Neighbourhood) -> list[float]:
    """Some multiples of δ and the distances of limits below the diameter (ground units), none of them twice.

    >>> import deltahist as dh
    >>> distances_told(dh.Neighbourhood(dh.Domain((0, 9), (9,)), 1, limits=[(3, 2), ("any", 4)]))
    [1.0, 2.0, 3.0, 5.0]
    """
    every = sorted([k * near.delta_ground for k in _MULTIPLES] + distances_of(near))
    return [d for d, after in zip(every, [*every[1:], math.inf], strict=True) if d < min(near.diameter, after * _LESS)]
