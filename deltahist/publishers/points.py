"""Publishing points on a line: sorted, or sums of consecutive ones; a median or another quantile alone."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.budget import Budget
from deltahist.errors import InputError
from deltahist.kinds.quantile import (
    PointsAround,
    Quantile,
    QuantileMechanism,
    check_quantile,
    lattice_steps,
    rate_of,
)
from deltahist.kinds.sorted import SortedMechanism, SortedRelease, check_membership, on_a_line, places_for
from deltahist.noise.exact import open_words
from deltahist.noise.samplers import draw_place, draw_rounded_student
from deltahist.publishers.gradual import begin
from deltahist.publishers.publication import (
    amounts_for,
    check_protection,
    find_preprocessing,
    match_counting,
    publish_measured,
    refuse_choices,
)
from deltahist.space.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from deltahist.accounts.window import Account


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

    When one point moves by at most δ, the sorted vector and sums of its consecutive entries move by at most δ in the L1
    norm: integer Laplace noise of scale δ/ε (in lattice steps) on each is ε-private.
    Source: 2014, section 5.5.1. Proof: docs/privacy/sorted.md.

    Parameters
    ----------
    points : (n,) finite coordinates in the domain's units; private. Points outside the domain are clamped to it.
    near : the neighbourhood, in one dimension; sources None (n is public), "left" or "right". Or a `SortedMechanism`,
        which has the other choices.
    epsilon, rho : pure ε with Laplace noise, or ρ-zCDP with Gaussian noise.
    group : points per sum, or "auto": chosen from public figures (`group_size`).
    most : public bound on the number of points, with sources "left" or "right".
    contributions : points of one user that may move at once; None: as many as `points_file` kept, or 1.
    weak_protection_accepted, account, state, rng : as for `publish`.

    Raises InputError on points that are not finite numbers, no points, more points than `most`, two dimensions, or a
    group whose sum does not fit.

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


def publish_quantile(
    points: ArrayLike,
    q: float,
    near: Neighbourhood | QuantileMechanism,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    method: str = "inverse",
    contributions: int | None = None,
    weak_protection_accepted: bool = False,
    account: Account | None = None,
    rng: np.random.Generator | None = None,
) -> Quantile:
    """Publish a quantile of points on a line under δ-neighbourhood.

    Source: 2014, section 5.5.2, and places drawn by the number of moves within δ that would make them the quantile
    (docs/internals/quantiles.md). Proofs: docs/privacy/quantiles.md.

    Parameters
    ----------
    points : (n,) finite coordinates in the domain's units; private. Points outside the domain are clamped to it.
    q : the quantile is the ⌈q n⌉-th smallest point; 0.5 is the median.
    near : the neighbourhood, one dimension, fixed membership. Or a `QuantileMechanism`, which has the other choices.
    epsilon, rho : pure ε, or ρ-zCDP.
    method : "inverse" draws a place with probability ∝ e^(−ε/2 · moves), the moves within δ that make it the quantile;
        "smooth" (with ε) adds noise in proportion to the smooth sensitivity, whose scale is not published.
    contributions : points of one user that may move at once; None: as many as `points_file` kept, or 1.
    weak_protection_accepted, account, rng : as for `publish`.

    Raises InputError on no points, points that are not finite numbers, a q outside 0 to 1, two dimensions, sources, or
    a method that cannot use the budget.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> found = publish_quantile(np.arange(101), 0.5, near, epsilon=2.0, rng=np.random.default_rng(0))
    >>> found.method, abs(found.value - 50) < 10
    ('inverse', True)
    """
    if isinstance(near, QuantileMechanism):
        given = None if method == "inverse" else method
        refuse_choices("the budget and the method", {}, epsilon=epsilon, rho=rho, method=given)
        mechanism = match_counting(near, points, contributions)
        steps = lattice_steps(points, mechanism.domain)
        if (q, len(steps)) != (mechanism.q, mechanism.number):
            raise InputError(f"the mechanism is for the {mechanism.q:g}-quantile of {mechanism.number:,} points")
    else:
        check_quantile(q, near)
        counting = find_preprocessing(points, near.domain, contributions)
        steps = lattice_steps(points, near.domain)
        budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho))
        mechanism = QuantileMechanism(near, q, len(steps), budget, method, counting)
    check_protection(mechanism, weak_protection_accepted, rng)
    around = PointsAround(steps, mechanism.rank, mechanism.steps - 1)
    radius = mechanism.neighbourhood.radius
    # Before the charge, since these may raise.
    if mechanism.method == "smooth":
        scale = mechanism.smooth_scale(around)
    else:
        rate = rate_of(mechanism.budget, mechanism.counting.contributions)

    def noise() -> NDArray[np.int64]:
        """Draw the noise by the method, cut to the domain: it may be larger than 64 bits hold."""
        if mechanism.method == "smooth":
            drawn = draw_rounded_student(0, scale, open_words(rng))
        else:
            drawn = draw_place(around.nearest, around.room, radius, rate, open_words(rng))
        step = min(max(around.quantile + drawn, 0), mechanism.steps - 1)
        return np.array([step - around.quantile], dtype=np.int64)

    measured = np.array([around.quantile], dtype=np.int64)
    return publish_measured(Quantile, mechanism, measured, account=account, rng=rng, noise=noise)
