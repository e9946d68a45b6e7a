"""Publishing sorted points: all coordinates of a line, or sums of consecutive ones, with exact integer noise."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budget import Budget
from deltahist.budgets.window import Account, amounts_for
from deltahist.counts.private import how_made
from deltahist.domain import Domain
from deltahist.errors import InputError, fits_memory, whole
from deltahist.mechanisms import SortedMechanism
from deltahist.mechanisms.base import vouched
from deltahist.mechanisms.sorted import check_all_there, check_membership, on_a_line
from deltahist.neighbourhood import Neighbourhood
from deltahist.publishers.chains import begin
from deltahist.publishers.histogram import as_counted, check_protection, draw, only_a_mechanism
from deltahist.releases import SortedRelease


def publish_sorted(
    points: ArrayLike,
    near: Neighbourhood | SortedMechanism,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    group: int | str = "auto",
    most: int | None = None,
    contributions: int | None = None,
    weak_protection_accepted: bool = False,
    account: Account | None = None,
    state: str | Path | None = None,
    rng: np.random.Generator | None = None,
) -> SortedRelease:
    """Publish the sorted coordinates of points on a line under δ-neighbourhood.

    When one point moves by at most δ, the sorted vector moves by at most δ in the L1 norm, and so do sums of
    consecutive entries: integer Laplace noise of scale δ/ε (in lattice steps) on each is ε-private.
    Source: 2014, section 5.5.1. Proof: docs/privacy/sorted.md.

    Parameters
    ----------
    points : (n,) finite coordinates in the domain's units; private. Those outside the domain are clamped to it.
    near : the neighbourhood, in one dimension; sources None (n is public), "left" or "right". Or a `SortedMechanism`,
        fixed before there were data: the other choices are then its own.
    epsilon : pure ε with Laplace noise; or
    rho : ρ-zCDP with Gaussian noise.
    group : points per sum, or "auto": chosen from public figures (`group_size`).
    most : with a source at one end, the public bound on the number of points; absent ones are parked there.
    contributions : points of one user that may move at once; what the points know (`points_file`), or 1, when None.
    weak_protection_accepted, account, state : as for `publish`.
    rng : a seeded generator, for experiments only: the release is stamped not for publication.

    Returns
    -------
    SortedRelease

    Raises
    ------
    InputError
        On points that are no finite numbers, no points, more of them than `most`, a domain of two dimensions,
        sources other than one end, or a group whose sum does not fit.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (20,)), delta=5)
    >>> release = publish_sorted([31, 8, 64, 47], near, epsilon=1.0, group=2)
    >>> release.values.shape, release.total
    ((2,), 4)
    """
    array = on_a_line(points)
    if isinstance(near, SortedMechanism):
        holds = "the budget, the group and the number of points"
        only_a_mechanism(holds, {"group": group}, epsilon=epsilon, rho=rho, most=most)
        mechanism = as_counted(near, points, contributions)
        near, number = mechanism.neighbourhood, mechanism.number
        if len(array) > number or (near.fixed_membership and len(array) != number):
            raise InputError(
                f"the mechanism is for {number:,} points, and there are others: their number must be its own"
            )
    else:
        check_membership(near)
        counting = how_made(points, near.domain, contributions)
        check_all_there(counting)
        number = _places(len(array), near, most)
        budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
        mechanism = SortedMechanism(near, number, budget, group, counting)
    check_protection(mechanism, weak_protection_accepted, rng)
    fits_memory(40 * number, f"sorting {number:,} points")
    steps = sorted_steps(array, near.domain, number, parked=near.sources)
    sums = np.add.reduceat(steps, np.arange(0, number, mechanism.together))
    if state is not None:
        return begin(
            mechanism, state, account, rng, lambda known, noise, paid: SortedRelease(known, sums + noise, payment=paid)
        )
    payment = None if account is None else account.pay(mechanism.guarantee)
    noisy = sums + draw(mechanism.law, len(sums), rng)
    return vouched(SortedRelease(mechanism, noisy, payment=payment), rng is None)


def _places(present: int, near: Neighbourhood, most: int | None) -> int:
    """Length of the released list: the number of points, or its public bound."""
    if near.fixed_membership:
        if most is not None:
            raise InputError(
                f"most is {most!r} with fixed membership: the number of points is public then; leave it out, or "
                "declare sources='left' or 'right'"
            )
        if not present:
            raise InputError("there are no points: a list of none says nothing")
        return present
    if most is None:
        raise InputError(
            f"most is missing with sources={near.sources!r}: give a public bound on the number of points; the places "
            "that nobody takes are parked at the source"
        )
    bound = whole(most=most)
    if present > bound:
        raise InputError(
            f"most is {bound:,}, but there are more points: raise the public bound (it costs no budget)"
        )
    return bound


def sorted_steps(
    points: NDArray[Any], domain: Domain, number: int, *, parked: Any = None
) -> NDArray[np.int64]:
    """Sorted lattice steps (number,), absent points at the end where they are parked; private."""
    steps = np.empty(number, dtype=np.int64)
    absent = number - len(points)
    if parked == "right":
        steps[len(points) :] = domain.lattice_shape[0] - 1
        part = steps[: len(points)]
    else:
        steps[:absent] = 0
        part = steps[absent:]
    if len(points):
        part[:] = domain.lattice(points)[:, 0]
    part.sort()
    return steps
