"""Publishing sorted points: all coordinates of a line, or sums of consecutive ones, with exact integer noise."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from deltahist.accounts.window import Account, amounts_for
from deltahist.budget import Budget
from deltahist.counting.private import find_preprocessing
from deltahist.kinds.sorted import SortedMechanism, SortedRelease
from deltahist.kinds.sorted.mechanism import check_membership, on_a_line, places_for
from deltahist.publishers.gradual import begin
from deltahist.publishers.publication import (
    check_protection,
    match_counting,
    publish_measured,
    refuse_choices,
)
from deltahist.space.neighbourhood import Neighbourhood


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
    if isinstance(near, SortedMechanism):
        holds = "the budget, the group and the number of points"
        refuse_choices(holds, {"group": group}, epsilon=epsilon, rho=rho, most=most)
        mechanism = match_counting(near, points, contributions)
    else:
        check_membership(near)
        counting = find_preprocessing(points, near.domain, contributions)
        number = places_for(len(on_a_line(points)), near, most)
        budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
        mechanism = SortedMechanism(near, number, budget, group, counting)
    check_protection(mechanism, weak_protection_accepted, rng)
    sums = mechanism.measure(points)
    if state is None:
        return publish_measured(SortedRelease, mechanism, sums, account=account, rng=rng)
    return begin(SortedRelease, mechanism, sums, state, account=account, rng=rng)
