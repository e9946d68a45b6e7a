"""Estimates that are counts can be: not negative, with the known total, and nearest in the noise's own metric."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltahist.decode.metric import Metric
from deltahist.errors import DeltaHistWarning

#: Steps of the splitting method: between two looks at the certificate, and at most.
_STEPS, _MOST_STEPS = 20, 6000
#: Squared distance from the best estimate, in standard errors, at which the method ends.
CLOSE = 0.1
#: Cells times steps at most, a minute or two.
_MOST_WORK = 1 << 31
#: Over-relaxation (Boyd et al. 2011, section 3.4.3).
_RELAX = 1.7


@dataclass(frozen=True, eq=False)
class Projection:
    """Cells (domain.shape) and the certificate.

    No answer differs from that of the exactly nearest cells by more than √`distance` of its standard errors.
    """

    cells: NDArray[np.float64]
    distance: float
    steps: int


def nonnegative(field: NDArray[np.float64], metric: Metric, total: float | None) -> Projection:
    """The nearest cells that are not negative and add up to the total, in the noise's metric.

    Minimises ½ (c − ĉ)ᵀ M (c − ĉ) over c ≥ 0 (and 1ᵀc = n), where M has the inverse of the noise's variance as
    its eigenvalues on waves. In the plain metric the projection would destroy the cancellations between cells
    that make correlated noise small on boxes. Alternating directions (Boyd et al. 2011): one filter and one
    clipping per step. The multipliers bound the least distance from below: the result comes with a certificate.

    Parameters
    ----------
    field : unbiased estimates on the metric's grid, with the total if that is known.
    metric : of their noise.
    total : number of points, or None if it is not known.

    Warns
    -----
    DeltaHistWarning
        If the certificate is not reached; the result is valid, but may be less accurate.
    """
    if (total is not None and total <= 0) or not metric.variance.any():
        return Projection(np.maximum(field[metric.inside], 0.0) * (total != 0), 0.0, 0)
    variance = metric.variance
    most = np.zeros(metric.grid)
    most[metric.inside] = np.inf
    weight = np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0)
    # Large steps suit long waves, small ones short waves; the number of waves across the grid settles it.
    step = 2 * max(metric.grid) / float(variance.mean())
    pull = step * variance / (1 + step * variance)
    z = np.clip(field, 0.0, most)
    u = np.zeros_like(field)
    cells, nearest, done = z, np.inf, 0
    limit = min(_MOST_STEPS, max(_STEPS, _MOST_WORK // field.size))
    while done < limit and nearest > CLOSE:
        for _ in range(_STEPS):
            x = field + metric.filter(z - u - field, pull)
            u += _RELAX * x + (1 - _RELAX) * z
            z = np.clip(u, 0.0, most)
            u -= z
        done += _STEPS
        point = z
        if total is not None:
            point = (
                z * (total / z.sum())
                if z.any()
                else np.where(most > 0, total / most[metric.inside].size, 0.0)
            )
        # For multipliers ν ≥ 0 (of either sign beyond the domain) the least of ½ |c − ĉ|²_M − νᵀc over all c of
        # the right total is −νᵀĉ − ½ νᵀM⁻¹ν.
        away, multiplier = point - field, -step * u
        primal = 0.5 * float((away * metric.filter(away, weight)).sum())
        dual = -float((multiplier * (field + metric.filter(multiplier, variance) / 2)).sum())
        # Strong convexity: ½ |c − c*|²_M ≤ primal − dual.
        distance = max(2 * (primal - dual), 0.0)
        if distance < nearest:
            cells, nearest = point, distance
    if nearest > CLOSE:
        warnings.warn(
            f"non-negative estimates are certified to {nearest**0.5:.2g} standard errors of the nearest ones after "
            f"{done:,} steps (aimed at {CLOSE**0.5:.2g}): they are valid, but may be less accurate",
            DeltaHistWarning,
            stacklevel=2,
        )
    return Projection(cells[metric.inside], nearest, done)
