"""Publishing medians and other quantiles of points on a line."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.accounts.window import Account, amounts_for
from deltahist.budget import Budget
from deltahist.counting.private import find_preprocessing
from deltahist.errors import InputError
from deltahist.kinds.quantile import PointsAround, Quantile, QuantileMechanism
from deltahist.kinds.quantile.methods import SIGMA, PlaceNoise
from deltahist.kinds.quantile.points import lattice_steps
from deltahist.kinds.quantile.release import check_quantile
from deltahist.kinds.sorted.mechanism import check_all_there
from deltahist.noise.entropy import source
from deltahist.noise.heavy import rounded
from deltahist.noise.places import draw_place
from deltahist.privacy import Law
from deltahist.publishers.publication import (
    Noise,
    check_protection,
    draw,
    match_counting,
    publish_measured,
    refuse_choices,
)
from deltahist.space.neighbourhood import Neighbourhood


def publish_quantile(
    points: ArrayLike,
    q: float,
    near: Neighbourhood | QuantileMechanism,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    probability: float | None = None,
    method: str = "auto",
    contributions: int | None = None,
    weak_protection_accepted: bool = False,
    account: Account | None = None,
    rng: np.random.Generator | None = None,
) -> Quantile:
    """Publish a quantile of points on a line under δ-neighbourhood.

    Source: 2014, section 5.5.2, with the noises of Bun and Steinke 2019 and places drawn by the number of moves
    within δ that would make them the quantile (docs/quantiles.md). Proofs: docs/privacy/quantiles.md.

    Parameters
    ----------
    points : (n,) finite coordinates in the domain's units; private. Those outside the domain are clamped to it.
    q : which quantile: the ⌈q n⌉-th smallest point; 0.5 is the median.
    near : the neighbourhood, one dimension, fixed membership. Or a `QuantileMechanism` for the same q, fixed before
        there were data: the other choices are then its own.
    epsilon : pure ε; or
    rho : ρ-zCDP.
    probability : with epsilon, a failure probability that is allowed: more noises are then considered.
    method : "auto" takes the least expected error for evenly spread points (`QuantileMechanism.methods`), or one of

        - "inverse": a place is drawn with probability ∝ e^(−ε/2 · moves), where `moves` is how many moves within
          δ it takes to make it the quantile; "exponential": the same for moves of any length (the baseline);
        - "global": integer noise of scale δ/ε;
        - "smooth-student" (pure ε), "smooth-laplace" (ε and probability), "smooth-lognormal" (ρ, or ε and
          probability): noise in proportion to the smooth sensitivity.
    contributions : points of one user that may move at once; what the points know (`points_file`), or 1, when None.
    weak_protection_accepted, account : as for `publish`.
    rng : a seeded generator, for experiments only: the result is stamped not for publication.

    Returns
    -------
    Quantile, with the value on the public lattice; the scale of the noise is not in it.

    Raises
    ------
    InputError
        On no points or points that are no finite numbers, a q outside 0 to 1, two dimensions, membership that is
        not fixed, or a method that does not go with the budget.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), delta=5)
    >>> found = publish_quantile(np.arange(101), 0.5, near, epsilon=2.0, rng=np.random.default_rng(0))
    >>> found.method, abs(found.value - 50) < 10
    ('inverse', True)
    """
    if isinstance(near, QuantileMechanism):
        amounts = {"epsilon": epsilon, "rho": rho, "probability": probability}
        refuse_choices("the budget and the method", {"method": method}, **amounts)
        mechanism = match_counting(near, points, contributions)
        steps = lattice_steps(points, mechanism.domain)
        if (q, len(steps)) != (mechanism.q, mechanism.number):
            raise InputError(
                f"the mechanism is for the {mechanism.q:g}-quantile of {mechanism.number:,} points: q must be that, "
                "and so must their number"
            )
    else:
        check_quantile(q, near)
        counting = find_preprocessing(points, near.domain, contributions)
        check_all_there(counting)
        steps = lattice_steps(points, near.domain)
        budget = Budget(**amounts_for(account, epsilon=epsilon, rho=rho), probability=probability)
        mechanism = QuantileMechanism(near, q, len(steps), budget, method, counting)
    check_protection(mechanism, weak_protection_accepted, rng)
    around = PointsAround(steps, mechanism.rank, mechanism.steps - 1)
    measured = np.array([around.quantile], dtype=np.int64)
    return publish_measured(
        Quantile, mechanism, measured, account=account, rng=rng, noise=_QuantileNoise(mechanism, around)
    )


class _QuantileNoise(Noise):
    """Noise of one quantile by its method, cut to the domain: it may be larger than 64 bits hold."""

    def __init__(self, mechanism: QuantileMechanism, around: PointsAround) -> None:
        self._most, self._around = mechanism.steps - 1, around
        self._noise = mechanism.how.noise(mechanism, around)

    def draw(self, rng: np.random.Generator | None) -> NDArray[np.int64]:
        noise, quantile = self._noise, self._around.quantile
        if isinstance(noise, Law):
            drawn = int(draw(noise, 1, rng)[0])
        elif isinstance(noise, PlaceNoise):
            drawn = draw_place(noise.nearest, noise.room, noise.reach, noise.rate, source(rng))
        else:
            drawn = rounded(noise.law, 0, noise.scale, source(rng), sigma=SIGMA)
        return np.array([min(max(quantile + drawn, 0), self._most) - quantile], dtype=np.int64)


#: Its short name.
quantile = publish_quantile
