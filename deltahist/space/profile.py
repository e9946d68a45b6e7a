"""Profiles: promises beyond δ, as limits on the cost of a change by its length in space, or in time."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError, as_printed, whole
from deltahist.space.domain import Domain

#: What any move at all costs at most, in units of ε, where a strategy is chosen and nothing is said (docs/choosing.md).
USUAL_CAP = Fraction(4)
#: The profile ε r/δ, and a distance that no move exceeds.
PROPORTIONAL, ANY = "proportional", "any"
#: Cells whose distances are all told apart where a function is tabulated; beyond, distances within this share of each
#: other are limited as the shortest of them.
_TOLD_APART, _RATIO = 24, 1.02
#: Limits that a profile may have.
_MOST_LIMITS = 4096


class Limit(NamedTuple):
    """A limit: moves over at most a distance cost at most a factor times the cost within δ.

    distance : ground length, as δ is given, or infinity for any move at all; in time a number of steps. factor : of ε;
    of ρ its square counts for moves.
    """

    distance: float | str
    factor: Fraction

    @property
    def any(self) -> bool:
        """Whether it holds for moves of any length."""
        return self.distance == math.inf

    def __str__(self) -> str:
        where = "for any move" if self.any else f"within {self.distance}"
        return f"{float(self.factor):g} times the budget {where}"


#: What a profile may be given as: pairs, a function of the ground distance, "proportional", or several of these.
Limits: TypeAlias = (
    "Iterable[tuple[float | str, Any] | Callable[[float], Any] | str] | Callable[[float], Any] | str"
)
#: Limits with their lengths in units of the map, or steps of time.
_Steps: TypeAlias = "list[tuple[float, Limit]]"


def read_limits(given: Limits, domain: Domain, delta: float | str) -> tuple[Limit, ...]:
    """Read limits by increasing distance, of which none is idle; of several for one distance the least holds.

    Raises InputError on a distance that is not above δ or in another unit, a factor that is not a number of at least 1,
    or factors that fall where the distance grows.
    """
    within = domain.length(delta, name="delta")
    if not callable(given) and not isinstance(given, Iterable):
        raise InputError(f"limits is {given!r}: it must be a list of pairs (distance, factor)")
    steps: _Steps = []
    tables: list[_Steps] = []
    for each in [given] if callable(given) or isinstance(given, str) else given:
        if isinstance(each, str) and each == PROPORTIONAL:
            tables.append(_tabulate(lambda r: max(1.0, r / domain.ground(within)), domain, within))
        elif callable(each):
            tables.append(_tabulate(each, domain, within))
        else:
            distance, factor = _read_pair(each)
            length = math.inf if distance == math.inf else domain.length(distance, name="the distance of a limit")
            if length <= within:
                raise InputError(
                    f"the distance of a limit is {distance!r}: it must be longer than delta={delta!r}, within which "
                    "the budget itself is promised (is it in the same unit?)"
                )
            steps.append((length, Limit(distance, factor)))
    return _least([_sorted(steps), *tables])


def read_lasting(given: Iterable[tuple[Any, Any]], length: int | None) -> tuple[Limit, ...]:
    """Read limits for changes by their steps of time, whole numbers or infinity; as `read_limits`.

    The steps must be more than the window's length.
    """
    steps: _Steps = []
    for pair in given:
        last, factor = _read_pair(pair)
        if last != math.inf:
            last = whole("or infinity", **{"the steps of a limit": last})
        if length is None or last <= length:
            raise InputError(
                f"limits holds ({last}, {factor}): it must be about more steps than the window's "
                f"{'own, which has no end' if length is None else f'{length:,}, within which the budget is promised'}"
            )
        steps.append((float(last), Limit(last, factor)))
    return _least([_sorted(steps)])


def _read_pair(given: Any) -> tuple[Any, Fraction]:
    """Return a distance as JSON has it, infinity for any, and a factor."""
    try:
        distance, factor = given
    except (TypeError, ValueError):
        raise InputError(
            f'limits holds {given!r}: it must be a pair (distance, factor), "proportional", or a function of the '
            "distance"
        ) from None
    if isinstance(distance, str) and distance == ANY:
        distance = math.inf
    elif isinstance(distance, numbers.Real) and distance != math.inf:
        distance = int(distance) if isinstance(distance, numbers.Integral) else float(distance)
    return distance, _read_factor(factor, "for any move" if distance == math.inf else f"at {distance!r}")


def _read_factor(value: Any, place: str) -> Fraction:
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not math.isfinite(value) or value < 1:
        raise InputError(
            f"the limit {place} is {value!r}: it must be a finite number of at least 1, since shorter moves cost up to "
            "the budget (take a smaller budget for less)"
        )
    return as_printed(value)


def _sorted(steps: _Steps) -> _Steps:
    """Sort limits by length, and raise InputError if a longer one allows less, or one length has two factors."""
    steps = sorted(steps, key=lambda step: step[0])
    for (length, near), (same, far) in itertools.pairwise(steps):
        if length == same and far.factor != near.factor:
            raise InputError(f"limits holds {near} and {far}: say one of them, which of the two is meant?")
        if far.factor < near.factor:
            raise InputError(
                f"limits holds {far} after {near}: a longer change may not cost less than a shorter one, which it "
                "could be made of (are the two exchanged?)"
            )
    return steps


def _tabulate(function: Callable[[float], Any], domain: Domain, delta: float) -> _Steps:
    """Tabulate a function of the distance as limits: between cells at a distance, moves cost at most its value."""
    sides = [side * some_below(n, 400) for side, n in zip(domain.cell, domain.shape, strict=True)]
    apart = np.unique(np.hypot(*np.meshgrid(*sides)).ravel() if domain.ndim == 2 else sides[0])
    kept: list[float] = []
    for distance in apart[apart > delta * (1 - 1e-12)].tolist():
        near = distance <= _TOLD_APART * max(domain.cell)
        if not kept or distance > kept[-1] * (1 + 1e-9 if near else _RATIO):
            kept.append(distance)
    out: _Steps = []
    # Cells may be δ apart, or hold points that are just a little further apart than that.
    for start, end in itertools.pairwise([delta, *kept, math.inf]):
        # A lattice step less: cells that are as far apart as `end` are for the next limit, whatever is rounded.
        until = end - max(domain.step)
        if until > start:
            place = domain.ground(start)
            out.append((until, Limit(domain.ground(until), _read_factor(function(place), f"at {place:.10g}"))))
    return _sorted(out)


def some_below(number: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` whole numbers below `number`: the first ones all, then at gaps in proportion to size."""
    return np.asarray(np.unique(np.geomspace(1, number, most).round().astype(np.int64)) - 1)


def _least(profiles: Sequence[_Steps]) -> tuple[Limit, ...]:
    """Return the least of several profiles at every distance; limits that another one implies are left out."""
    every = sorted(itertools.chain(*profiles), key=lambda step: (step[0], -step[1].factor))
    out: list[Limit] = []
    for _, limit in reversed(every):  # from the longest: what holds there holds for all shorter moves
        if not out or limit.factor < out[-1].factor:
            out.append(limit)
    if len(out) > _MOST_LIMITS:
        raise InputError(f"limits has {len(out):,} steps: at most {_MOST_LIMITS:,}")
    return tuple(reversed(out))


def describe_limits(limits: Sequence[Limit]) -> list[list[Any]]:
    """Describe limits as JSON: pairs of the distance, or "any", and the exact factor."""
    return [[ANY if limit.any else limit.distance, str(limit.factor)] for limit in limits]


def limits_of(description: Any) -> list[tuple[float | str, Fraction]]:
    """Read the limits that `describe_limits` described, from an untrusted file.

    Raises InputError on a profile of another kind, which a newer version may know.
    """
    try:
        if not isinstance(description, list) or len(description) > _MOST_LIMITS:
            raise ValueError
        pairs = [(far, factor) for far, factor in description]
        if not all(isinstance(far, int | float | str) and isinstance(factor, str) for far, factor in pairs):
            raise ValueError
        return [(far, Fraction(factor)) for far, factor in pairs]
    except (TypeError, ValueError, ZeroDivisionError):
        raise InputError(
            f"limits is {str(description)[:80]!r}: it must be pairs of a distance and a factor, a fraction (a profile "
            "of a newer version?)"
        ) from None
