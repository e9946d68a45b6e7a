"""Decoding the bits that users reported: which candidates are there, and how many users have each.

Source: Erlingsson, Pihur and Korolova 2014, section 4. Unbiased counts of bits, a non-negative LASSO that selects
candidates, least squares on those that it leaves, with the exact variance of the channel and of who is in which cohort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from numpy.typing import NDArray

from deltahist.errors import InputError, is_number

if TYPE_CHECKING:
    import pandas as pd

#: Added to the diagonal, relative to it: else candidates that are sums of others would make factorising fail.
_RIDGE = 1e-9


def decode_counts(
    ones: NDArray[Any],
    users: NDArray[Any],
    positions: NDArray[np.int64],
    bits: int,
    zero: Fraction,
    one: Fraction,
    candidates: Sequence[str],
    level: float,
) -> pd.DataFrame:
    """Estimate all candidates from counts of reported ones.

    Parameters
    ----------
    ones : (cohorts, bits) reports of 1. users : (cohorts,) reports.
    positions : (candidates, cohorts, k) bits that each candidate sets. bits : of the filter.
    zero, one : how often a 0 and a 1 are reported as 1.
    candidates : their names. level : family-wise, of the p-values.

    Returns
    -------
    DataFrame with candidate, estimate, std_error, p_value, significant.

    Raises
    ------
    InputError
        On shapes that do not fit, counts that cannot be, or a channel that tells nothing.
    """  # fmt: skip
    import pandas as pd
    import scipy.stats

    if not is_number(level) or not 0 < level < 1:
        raise InputError(
            f"level is {level!r}: it must be the probability of a false discovery, between 0 and 1, such as 0.05"
        )
    _check(ones, users, (positions.shape[1], bits), zero, one)
    estimate, error = np.zeros(len(candidates)), np.full(len(candidates), np.nan)
    p_value = np.ones(len(candidates))
    if users.sum() and len(candidates):
        seen = _Seen(ones, users, float(zero), float(one))
        design = _design(positions, seen, bits)
        others = seen.whitened(np.repeat(seen.share, bits))
        chosen = _selected(design, others, seen.whitened(seen.counts))
        if len(chosen):
            estimate[chosen], error[chosen] = _least_squares(design[:, chosen].toarray(), others, seen)
            p_value[chosen] = scipy.stats.norm.sf(estimate[chosen] / error[chosen])
    return pd.DataFrame(
        {
            "candidate": list(candidates),
            "estimate": estimate,
            "std_error": error,
            "p_value": p_value,
            "significant": p_value <= level / max(1, len(candidates)),
        }
    )


def _check(
    ones: NDArray[Any], users: NDArray[Any], shape: tuple[int, int], zero: Fraction, one: Fraction
) -> None:
    if ones.shape != shape or users.shape != shape[:1]:
        raise InputError(
            f"ones have the shape {ones.shape} and users {users.shape}: they must be counts for {shape[0]} cohorts and "
            f"{shape[1]} bits, {shape} and {shape[:1]}"
        )
    if not ((users >= 0).all() and (ones >= 0).all() and (ones <= users[:, None]).all()):
        raise InputError(
            "a cohort has more ones than users, or less than none: ones must be from 0 to the cohort's users"
        )
    if zero >= one:
        raise InputError(
            f"a 0 and a 1 are both reported as 1 with probability {float(zero):g}: at f = 1 reports tell nothing, and "
            "nothing can be decoded"
        )


class _Seen:
    """How many users of each cohort seem to have each bit, and how sure that is.

    Rows, (cohorts · bits,), are divided by the standard error of an unset bit to be alike: `whitened`.
    """

    def __init__(self, ones: NDArray[Any], users: NDArray[Any], zero: float, one: float) -> None:
        self.users = users.astype(np.float64)
        self.bits = ones.shape[1]
        rise = one - zero
        # Unbiased: E[ones] = zero · users + (one − zero) · (users with the bit).
        self.counts = ((ones - zero * self.users[:, None]) / rise).ravel()
        each = np.repeat(self.users, self.bits)
        there = np.clip(self.counts, 0, each)
        self.variance = (there * one * (1 - one) + (each - there) * zero * (1 - zero)) / rise**2
        self.spread = np.sqrt(each * zero * (1 - zero)) / rise

    @property
    def share(self) -> NDArray[np.float64]:
        """Of all users, in each cohort."""
        return self.users / self.users.sum()

    def whitened(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows in units of their noise; empty cohorts have zeros."""
        return np.divide(rows, self.spread, out=np.zeros_like(rows), where=self.spread > 0)


def _design(positions: NDArray[np.int64], seen: _Seen, bits: int) -> scipy.sparse.csc_array:
    """Return the whitened rows that one user of each candidate is expected to add, (cohorts · bits, candidates)."""
    number, cohorts, _ = positions.shape
    rows = positions + bits * np.arange(cohorts)[:, None]
    columns = np.broadcast_to(np.arange(number)[:, None, None], positions.shape)
    # Two hashes on one bit set it once.
    key = np.unique(rows * number + columns)
    value = seen.whitened(np.repeat(seen.share, bits))[key // number]
    return scipy.sparse.csc_array((value, (key // number, key % number)), shape=(cohorts * bits, number))


def _selected(
    design: scipy.sparse.csc_array, others: NDArray[np.float64], target: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Select candidates by a non-negative LASSO, with penalties that noise alone seldom exceeds.

    Texts that are not listed, or too rare to be chosen, set all bits alike: `others`, without a penalty.
    """
    from scipy.linalg import cholesky, solve_triangular
    from scipy.optimize import nnls

    number = design.shape[1]
    norms = np.sqrt(np.asarray(design.multiply(design).sum(axis=0)).ravel())
    penalty = math.sqrt(2 * math.log(max(number, 2))) * norms
    # Designs and estimates are not negative: the others only lower what is left for a candidate to explain.
    left = np.flatnonzero(design.T @ target > penalty)
    rows = np.column_stack([design[:, left].toarray(), others])
    aim = rows.T @ target - np.append(penalty[left], 0)
    gram = rows.T @ rows
    gram[np.diag_indices_from(gram)] *= 1 + _RIDGE
    # ½ xᵀGx − hᵀx is ½ ‖Lᵀx − L⁻¹h‖² but for a constant, G = LLᵀ.
    lower = cholesky(gram, lower=True)
    found, _ = nnls(lower.T, solve_triangular(lower, aim, lower=True), maxiter=30 * len(aim))
    return left[found[:-1] > 0]


def _least_squares(
    design: NDArray[np.float64], others: NDArray[np.float64], seen: _Seen
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return estimates and standard errors of the chosen candidates.

    Three things are random: the channel; in which cohorts a candidate's users are, each cohort's number being known;
    and which bits unlisted texts set. The last is seen in the residuals, and put on the channel.
    """
    full = np.column_stack([design, others])
    solve, target = np.linalg.pinv(full), seen.whitened(seen.counts)
    found = solve @ target
    there = np.maximum(found[:-1], 0)
    there *= min(1, seen.users.sum() / max(there.sum(), 1))
    together = np.diag(there) - np.outer(there, there) / seen.users.sum()
    channel = seen.whitened(seen.whitened(seen.variance))
    covariance, left_over = -together, ((target - full @ found) ** 2).sum()
    for cohort in np.flatnonzero(seen.users):
        rows, share = slice(cohort * seen.bits, (cohort + 1) * seen.bits), seen.share[cohort]
        # What a candidate's users would add to counts and estimates if all of them were in this cohort.
        here = design[rows] / share
        alone = solve[:, rows] @ here
        covariance += share * alone[:-1] @ together @ alone[:-1].T
        left_over -= share * ((here - full[rows] @ alone) @ together * here).sum()
    expected = channel @ (1 - np.einsum("ij,ji->i", full, solve))
    factor = max(1.0, left_over / expected) if expected > 0 else 1.0
    covariance += factor * (solve[:-1] * channel) @ solve[:-1].T
    return found[:-1], np.sqrt(np.maximum(np.diag(covariance), np.finfo(float).tiny))
