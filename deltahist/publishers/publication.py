"""Publish exact numbers with noise: check, charge, draw, add and stamp, in one way for every kind."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budget import Budget, read_amount
from deltahist.counting import Counts, Points
from deltahist.errors import InputError, check_whole
from deltahist.mechanisms import BaseMechanism
from deltahist.noise.exact import open_words
from deltahist.noise.samplers import BLOCK, sample_law
from deltahist.preprocessing import POINTS, Preprocessing
from deltahist.privacy import Law
from deltahist.space.domain import Domain

if TYPE_CHECKING:
    from deltahist.accounts.window import Account

#: Noise of a smaller variance is kept in 32 bits: a number that does not fit comes once in e^2000 draws.
_SMALL_VARIANCE = 2.0**40
_Mechanism = TypeVar("_Mechanism", bound=BaseMechanism)
_Release = TypeVar("_Release")


def publish_measured(
    make: Callable[..., _Release],
    mechanism: BaseMechanism,
    measured: NDArray[np.int64] | Callable[[], NDArray[np.int64]],
    *,
    account: Account | None,
    rng: np.random.Generator | None,
    noise: Callable[[], NDArray[np.int64]] | None = None,
    facts: Mapping[str, str | None] = MappingProxyType({}),
    publishable: bool = True,
) -> _Release:
    """Charge the account, draw noise, add it to what was measured, and return the release.

    Everything that may be refused was checked before: from the charge on, nothing about data decides anything.
    What is measured is fixed whatever ε, and decoding is post-processing: noise between both can be refined, too.
    Source: 2015, Corollary 13, eq. (40), (41).

    Parameters
    ----------
    make : makes the release of `mechanism`, `values` and `payment`.
    measured : (size,) exact numbers; private. Or a function that returns them and refuses nothing: it is called when
        the noise has entered, and its draws are gone from memory.
    account : charged, durably, before noise is drawn.
    rng : a seeded generator, for experiments only: the release is stamped not for publication.
    noise : draws the noise (size,); by default independent draws by the mechanism's laws.
    facts : of the chain, which its account needs (`Account.pay`).
    publishable : whether what the release follows from is for publication.
    """
    payment = None if account is None else account.pay(mechanism.guarantee, **facts)
    if noise is None:
        values = mechanism.scatter_groups(draw_noise(mechanism, rng))
        values += measured() if callable(measured) else measured
    else:
        values = (measured() if callable(measured) else measured) + noise()
    return make(mechanism=mechanism, values=values, payment=payment, publishable=publishable and rng is None)


def check_protection(mechanism: BaseMechanism, accepted: bool, rng: np.random.Generator | None = None) -> None:
    """Refuse a budget so large that hardly anything is protected, unless that is accepted (docs/privacy/weak.md).

    With a seeded generator everything goes: that is no publication. Noise that cannot be drawn is refused here, too,
    and so is a generator of another kind.
    """
    mechanism.laws  # noqa: B018
    mechanism.neighbourhood.check_on_map()
    if rng is not None:
        open_words(rng)
    elif not accepted:
        refuse_weak(mechanism.budget, mechanism.weakness)


def refuse_weak(budget: Budget, weakness: str | None) -> None:
    """Raise InputError if there is a reason why a budget hardly protects anything."""
    if weakness is not None:
        raise InputError(
            f"{budget.unit} is {float(budget.amount):g}: {weakness}; take less (epsilon of about 1, or rho of about "
            "0.1), or say that it is meant, with weak_protection_accepted=True"
        )


def refuse_choices(holds: str, choice: dict[str, Any], **amounts: Any) -> None:
    """Raise InputError if an argument repeats what a mechanism holds: a choice but "auto", or an amount but None."""
    if any(given != "auto" for given in choice.values()) or any(given is not None for given in amounts.values()):
        *names, last = [*choice, *amounts]
        raise InputError(f"a mechanism is given, which holds {holds}: {', '.join(names)} and {last} must be left out")


def find_preprocessing(
    data: ArrayLike, domain: Domain, contributions: int | None, dropped: Iterable[str] = ()
) -> Preprocessing:
    """Return how data to be published on a domain were made, with what the caller knows besides.

    Raises InputError if the data were counted on another domain, or the caller contradicts it.
    """
    known = POINTS
    if isinstance(data, Counts | Points):
        if data.domain != domain:
            raise InputError(
                f"the data were counted on {data.domain}, but the neighbourhood is on {domain}: lengths would mean "
                "something else; count them on the neighbourhood's domain"
            )
        known = data.preprocessing
    if more := tuple(dropped):
        known = replace(known, dropped=(*known.dropped, *more))
    if contributions is None:
        return known
    if check_whole(contributions=contributions) < known.contributions:
        raise InputError(
            f"contributions is {contributions!r}, but up to {known.contributions:,} points of a user were kept: it "
            "must be at least as many; leave it out"
        )
    return replace(known, contributions=contributions)


def match_counting(
    mechanism: _Mechanism, data: ArrayLike, contributions: int | None, dropped: Iterable[str] = ()
) -> _Mechanism:
    """Return the mechanism with the way in which counts (or points) came to the map, which only they know.

    Raises InputError if they hold more than the mechanism allows for.
    """
    known = find_preprocessing(data, mechanism.domain, contributions, dropped)
    allowed = mechanism.counting
    less = known.contributions > allowed.contributions or known.user > allowed.user
    other = isinstance(data, Counts | Points) and known.where != allowed.where
    if less or other or not set(known.dropped) <= set(allowed.dropped):
        raise InputError(
            f"the mechanism is for counts with {allowed.how}, but these have {known.how}: it must allow for as much"
        )
    if not isinstance(data, Counts | Points):
        return mechanism  # how they came to the map is only what the mechanism says
    return mechanism.with_counting(replace(allowed, projection=known.projection))


def amounts_for(account: Account | None, **amounts: Any) -> dict[str, Any]:
    """Return amounts as an account will charge them: a float as the decimal that it prints as; as given without one."""
    if account is None:
        return amounts
    return {name: None if amount is None else read_amount(**{name: amount}) for name, amount in amounts.items()}


def draw_noise(mechanism: BaseMechanism, rng: np.random.Generator | None) -> list[NDArray[Any]]:
    """Draw the noise of each group, part by part, so that little of it is held twice.

    Every part has a stream of its own from the operating system's entropy, so that several are drawn at a time; a
    seeded generator's words come one after another. Small noise is kept in 32 bits, unless a number does not fit.
    """
    found = []
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for members, law in mechanism.noise_groups:
            number = len(range(mechanism.draws)[members]) if isinstance(members, slice) else len(members)
            small = law.variance() < _SMALL_VARIANCE
            drawn = np.zeros(number, dtype=np.int32 if small else np.int64)
            too_large: dict[int, NDArray[np.int64]] = {}

            def fill(start: int, law: Law, drawn: NDArray[Any], too_large: dict[int, NDArray[np.int64]]) -> None:
                part = drawn[start : start + BLOCK]
                values = sample_law(law, len(part), rng)
                part[:] = values
                if drawn.dtype == np.int32 and np.any(part != values):
                    too_large[start] = values

            starts = range(0, number, BLOCK)
            each = map if len(starts) == 1 or rng is not None else pool.map
            list(each(functools.partial(fill, law=law, drawn=drawn, too_large=too_large), starts))
            if too_large:
                drawn = drawn.astype(np.int64)
                for start, values in too_large.items():
                    drawn[start : start + len(values)] = values
            found.append(drawn)
    return found
