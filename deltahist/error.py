"""Expected error of a strategy on a workload, from public data alone."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from deltahist.calibration import calibrate
from deltahist.decode import Decoder, decoder
from deltahist.neighbourhood import Neighbourhood
from deltahist.privacy import Law
from deltahist.strategies.base import Strategy
from deltahist.workloads import AllRanges, Boxes
from deltahist.workloads.polygons import Regions


class _ContinuousLaw(Law):
    """The same parameter, read as the scale of continuous noise."""

    def variance(self, *, continuous: bool = True) -> float:
        return super().variance(continuous=True)


def planned_decoder(
    strategy: Strategy,
    near: Neighbourhood,
    *,
    epsilon: float | Fraction | None = None,
    rho: float | Fraction | None = None,
    contributions: int = 1,
    continuous: bool = False,
) -> Decoder:
    """The decoder that a release would have, before there is one."""
    laws: Sequence[Law] = calibrate(strategy, near, epsilon=epsilon, rho=rho, contributions=contributions)
    if continuous:
        laws = [_ContinuousLaw(law.kind, law.parameter) for law in laws]
    return decoder(strategy, laws, total_known=near.fixed_membership)


def queries_of(
    work: Boxes | AllRanges | Regions, strategy: Strategy
) -> Boxes | AllRanges | scipy.sparse.csr_array:
    """What a decoder takes: boxes as they are, regions as rows of area shares."""
    return work.matrix(strategy.domain) if isinstance(work, Regions) else work


def expected_error(
    strategy: Strategy,
    near: Neighbourhood,
    work: Boxes | AllRanges | Regions,
    epsilon: float | Fraction | None = None,
    *,
    rho: float | Fraction | None = None,
    contributions: int = 1,
    continuous: bool = False,
) -> NDArray[np.float64]:
    """Variance of the answer to each query, in points squared; no data is looked at.

    Source: 2014, eq. (5), whose printed form omits the factor 2/ε² of Laplace noise.

    Parameters
    ----------
    strategy, near, work : what is measured, who may be confused with whom, what is asked.
    epsilon or rho : pure ε with Laplace noise (1.0 when neither is given), or ρ-zCDP with Gaussian noise.
    contributions : points per user that move at once.
    continuous : figures of continuous noise of the same scale (2 b² for Laplace), to compare with papers;
        releases use integer noise, whose variance is a little smaller.

    Returns
    -------
    (m,) float64, one variance per query.

    Raises
    ------
    InputError
        On queries outside the domain, or parameters that are not finite and above zero.

    >>> import deltahist as dh
    >>> domain = dh.Domain((0, 1), (4,))
    >>> near = dh.Neighbourhood(domain, delta=0.25, sources="left")
    >>> A = dh.strategies.Cumulative(domain)
    >>> round(float(expected_error(A, near, dh.workloads.all_ranges(domain), 1.0, continuous=True).sum()), 6)
    32.0
    """
    if epsilon is None and rho is None:
        epsilon = 1.0
    plan = planned_decoder(
        strategy, near, epsilon=epsilon, rho=rho, contributions=contributions, continuous=continuous
    )
    return plan.moments(queries_of(work, strategy)).variance
