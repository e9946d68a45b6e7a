"""RAPPOR, which reports users' strings as noisy bits: settings, reports and decoding. `clients` draws the noise.

Source: Erlingsson, Pihur and Korolova 2014. Relaxing follows Koufogiannis, Han and Pappas 2015, section 4.1, with
binary channels instead of thresholded Laplace noise. Proofs: docs/privacy/rappor.md.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import scipy
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import InputError, check_positive, check_whole
from deltahist.laws import Guarantee


@dataclass(frozen=True)
class Channel:
    """A noisy binary channel, which outputs 1 with probability `zero` for input 0 and probability `one` for input 1.

    Flipping with probability 1/8 and then 1/6 has the same effect as flipping with probability 1/4:

    >>> Channel.flipping(Fraction(1, 4)).find_remainder(Channel.flipping(Fraction(1, 8)))
    Channel(zero=Fraction(1, 6), one=Fraction(5, 6))
    """

    zero: Fraction
    one: Fraction

    @classmethod
    def flipping(cls, chance: Fraction) -> Channel:
        """Return the channel that flips each bit with probability `chance`."""
        return cls(chance, 1 - chance)

    @property
    def log_odds(self) -> float:
        """The cost of changing a 0 to 1 and a 1 to 0, ln(one (1 − zero) / (zero (1 − one))), for 0 < zero ≤ one < 1."""
        odds = self.one * (1 - self.zero) / (self.zero * (1 - self.one))
        if odds > 1 << 1000:
            return math.log(odds.numerator) - math.log(odds.denominator)
        return math.log1p(float(odds - 1))

    @property
    def exact(self) -> bool:
        """Whether the channel always outputs its input."""
        return self.zero == 0 and self.one == 1

    def then(self, after: Channel) -> Channel:
        """Return the channel that applies this channel and then `after`."""
        rise = after.one - after.zero
        return Channel(after.zero + rise * self.zero, after.zero + rise * self.one)

    def find_remainder(self, finer: Channel) -> Channel:
        """Return the channel for which `finer.then(channel)` equals this channel.

        Raises InputError if there is none, because a 1 or a 0 has a larger likelihood ratio in this channel.
        """
        rise = finer.one - finer.zero
        if rise == 0 and self.zero == self.one:
            return self if self != finer else Channel(Fraction(0), Fraction(1))
        zero = self.zero * finer.one - self.one * finer.zero
        one = self.one * (1 - finer.zero) - self.zero * (1 - finer.one)
        if rise <= 0 or not 0 <= zero <= one <= rise:
            raise InputError(f"a reported {int(zero < 0)} must reveal at least as much about the true bit as before")
        return Channel(zero / rise, one / rise)

    def find_refinement(self, coarse: Channel) -> tuple[Fraction, ...]:
        """Return P(this channel outputs 1 | the input is x and `coarse` outputs y), at index 2x + y.

        This is Bayes' rule (2015, section 4.1). If x never leads to y, the probability is P(1 | x).

        >>> Channel.flipping(Fraction(1, 8)).find_refinement(Channel.flipping(Fraction(1, 4)))
        (Fraction(1, 36), Fraction(5, 12), Fraction(7, 12), Fraction(35, 36))
        """
        after = coarse.find_remainder(self)
        chances = []
        for one in (self.zero, self.one):
            for given_zero, given_one in ((1 - after.zero, 1 - after.one), (after.zero, after.one)):
                seen = (1 - one) * given_zero + one * given_one
                chances.append(one * given_one / seen if seen else one)
        return tuple(chances)


@dataclass(frozen=True)
class Rappor:
    """Settings of a RAPPOR collection, which determine the guarantee and how users report their strings.

    A string sets up to `hashes` of a filter's `bits` bits. The user's cohort decides which. The user permanently
    replaces each bit by 1 or 0, with probability f/2 each, and keeps these permanent bits secret. A report has a 1 with
    probability q for a permanent 1, and with probability p for a permanent 0.

    Parameters
    ----------
    bits : size m of the filter. hashes : k, the most bits that a string sets. cohorts : number of groups of users.
    f, p, q : probabilities, 0 < f ≤ 1 and 0 ≤ p < q ≤ 1. A float counts as its binary value.

    >>> mechanism = Rappor(bits=128, hashes=2, cohorts=8, f=0.5, p=0.5, q=0.75)
    >>> round(float(mechanism.guarantee.epsilon), 3), round(float(mechanism.report_guarantee.epsilon), 3)
    (4.394, 1.074)
    >>> mechanism.relaxed(f=0.25).f
    0.25
    """

    bits: int = 128
    hashes: int = 2
    cohorts: int = 8
    f: Fraction | float = Fraction(1, 2)
    p: Fraction | float = Fraction(1, 2)
    q: Fraction | float = Fraction(3, 4)

    def __post_init__(self) -> None:
        for name in ("bits", "hashes", "cohorts"):
            check_whole(**{name: getattr(self, name)})
        if not (0 < self.f <= 1 and 0 <= self.p < self.q <= 1):
            rates = ", ".join(f"{name} is {float(getattr(self, name)):g}" for name in ("f", "p", "q"))
            raise InputError(f"{rates}: they must satisfy 0 < f ≤ 1 and 0 ≤ p < q ≤ 1")

    @classmethod
    def costing(cls, epsilon: float, **fields: Any) -> Rappor:
        """Return the settings with the least noise that cost at most `epsilon`. `fields` are the settings other than f.

        >>> mechanism = Rappor.costing(4.0, hashes=2, p=0, q=1)
        >>> float(mechanism.guarantee.epsilon) <= 4, round(float(mechanism.f), 6)
        (True, 0.537883)
        """
        each = check_positive(epsilon=epsilon) / (2 * check_whole(hashes=fields.get("hashes", cls.hashes)))
        f = 2 * math.exp(-each) / (1 + math.exp(-each))
        # Round f up by more than the floating-point error, which grows with ε.
        return cls(f=min(Fraction(1), Fraction(f) * (1 + Fraction(math.ceil(each), 10**12))), **fields)

    @property
    def permanent(self) -> Channel:
        """The channel from true to permanent bits, which flips a bit with probability f/2 (2015, eq. (43))."""
        return Channel.flipping(Fraction(self.f) / 2)

    @property
    def instantaneous(self) -> Channel:
        """The channel from permanent to reported bits: P(1 | 0) is p, and P(1 | 1) is q (2015, eq. (44))."""
        return Channel(Fraction(self.p), Fraction(self.q))

    @property
    def report(self) -> Channel:
        """The channel from true to reported bits: P(1 | 0) is p*, and P(1 | 1) is q*."""
        return self.permanent.then(self.instantaneous)

    @property
    def guarantee(self) -> Guarantee:
        """ε_∞, the cost of everything that one user ever reports at these and coarser settings.

        Two strings differ in at most 2k bits, and each permanent bit costs ln((1 − f/2)/(f/2)).
        """
        return _make_guarantee(self.permanent, self.hashes)

    @property
    def report_guarantee(self) -> Guarantee:
        """ε_1, the cost of one report and all its coarser versions: k ln(q* (1 − p*) / (p* (1 − q*))).

        Of the bits in which two strings differ, each string sets at most k.
        """
        return _make_guarantee(self.report, self.hashes)

    def relaxed(
        self, f: Fraction | float | None = None, p: Fraction | float | None = None, q: Fraction | float | None = None
    ) -> Rappor:
        """Return less noisy settings for which a report at the old settings is a coarser version of a new report.

        Raises InputError if f increases, or if q*/p* or (1 − p*)/(1 − q*) decreases.
        """
        rates = (old if new is None else new for old, new in ((self.f, f), (self.p, p), (self.q, q)))
        finer = Rappor(self.bits, self.hashes, self.cohorts, *rates)
        self.report.find_remainder(finer.report)
        self.to_report(finer).find_remainder(finer.instantaneous)
        return finer

    def to_report(self, finer: Rappor) -> Channel:
        """Return the channel from permanent bits of the `finer` settings to a report of these settings."""
        return self.permanent.find_remainder(finer.permanent).then(self.instantaneous)

    def describe(self) -> dict[str, Any]:
        """Return the settings as JSON-ready data."""
        return asdict(self) | {name: str(Fraction(getattr(self, name))) for name in ("f", "p", "q")}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Rappor:
        """Recreate settings from the output of `describe`."""
        return cls(**(description | {name: Fraction(description[name]) for name in ("f", "p", "q")}))

    def find_positions(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the k bit positions of each string in each cohort, of shape (strings, cohorts, k) (2015, eq. (42))."""
        out = np.empty((len(texts), self.cohorts, self.hashes), dtype=np.int64)
        for number, text in enumerate(texts):
            data = text.encode("utf-8", "surrogatepass")
            for cohort, index in np.ndindex(self.cohorts, self.hashes):
                key = f"{cohort}/{index}".encode()
                digest = hashlib.blake2b(data, digest_size=8, key=key).digest()
                out[number, cohort, index] = int.from_bytes(digest, "little") % self.bits
        return out

    def decode(
        self, ones: ArrayLike, users: ArrayLike, candidates: Sequence[str], *, level: float = 0.05
    ) -> pd.DataFrame:
        """Estimate how many users have each candidate string, from counts of reported 1s (docs/privacy/rappor.md).

        A non-negative LASSO selects candidates. A least-squares fit estimates how many users have each selected one.
        Source: Erlingsson, Pihur and Korolova 2014, section 4.

        Parameters
        ----------
        ones : (cohorts, bits) counts of reported 1s. users : (cohorts,) counts of reports, at most one per user.
        candidates : strings to look for, all different.
        level : probability that any candidate without users is reported as significant (Bonferroni).

        Returns
        -------
        A DataFrame with a row for each candidate and the columns candidate, estimate (of users), std_error (NaN if the
        candidate was not selected), p_value and significant.

        >>> mechanism = Rappor(bits=16, cohorts=2, f=0.01, p=0, q=1)
        >>> at = mechanism.find_positions(["cafe"])[0]
        >>> ones = np.zeros((2, 16))
        >>> for cohort in range(2):
        ...     ones[cohort, at[cohort]] = 500
        >>> mechanism.decode(ones, [500, 500], ["cafe", "museum"])["significant"].tolist()
        [True, False]
        """
        ones, users = np.asarray(ones), np.asarray(users)
        fits = ones.shape == (self.cohorts, self.bits) and users.shape == (self.cohorts,)
        if not fits or ((ones < 0) | (ones > users[:, None])).any() or len(set(candidates)) < len(candidates):
            rule = f"they must count reports of {self.bits} bits in {self.cohorts} cohorts, and candidates must differ"
            raise InputError(f"ones and users have the shapes {ones.shape} and {users.shape}: {rule}")
        number = len(candidates)
        estimate, error, p_value = np.zeros(number), np.full(number, np.nan), np.ones(number)
        if users.sum() and number:
            seen = _Seen(ones, users, self.report)
            design = _build_design(self.find_positions(candidates), seen)
            chosen = _select_candidates(design, seen)
            if len(chosen):
                estimate[chosen], error[chosen] = _estimate_candidates(design[:, chosen].toarray(), seen)
                p_value[chosen] = scipy.stats.norm.sf(estimate[chosen] / error[chosen])
        table = {"candidate": list(candidates), "estimate": estimate, "std_error": error, "p_value": p_value}
        return pd.DataFrame(table | {"significant": p_value <= level / max(1, number)})


class Reports:
    """One report from each user. Nothing else leaves the users' devices.

    cohorts : public whole numbers from 0, one per user. bits : array (users, m), in which any nonzero number is a 1.
    publishable : whether the noise comes from the operating system's generator, not from a seeded one.
    """

    def __init__(self, mechanism: Rappor, cohorts: ArrayLike, bits: ArrayLike, publishable: bool = False) -> None:
        self.mechanism, self.publishable = mechanism, publishable
        self.cohorts = np.asarray(cohorts).astype(np.int64, casting="same_kind")
        self.bits = np.array(bits, dtype=bool).view(np.uint8)
        for array in (self.cohorts, self.bits):
            array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.cohorts)

    @functools.cached_property
    def ones(self) -> NDArray[np.int64]:
        """The numbers of 1s, of shape (cohorts, m). Numbers from several collections can be added."""
        cohorts = range(self.mechanism.cohorts)
        return np.array([self.bits[self.cohorts == cohort].sum(axis=0, dtype=np.int64) for cohort in cohorts])

    @property
    def users(self) -> NDArray[np.int64]:
        """The number of users in each cohort."""
        return np.bincount(self.cohorts, minlength=self.mechanism.cohorts)

    def decode(self, candidates: Sequence[str], *, level: float = 0.05) -> pd.DataFrame:
        """Estimate how many users have each candidate string, as `Rappor.decode` does."""
        return self.mechanism.decode(self.ones, self.users, candidates, level=level)


def _make_guarantee(channel: Channel, hashes: int) -> Guarantee:
    """Return k ln(q (1 − p) / (p (1 − q))), rounded up by more than the floating-point error."""
    rounding = 0 if channel.zero == channel.one else Fraction(hashes, 10**14)
    return Guarantee(Fraction(hashes * channel.log_odds) * (1 + Fraction(1, 10**14)) + rounding)


class _Seen:
    """Estimates of how many users have each bit in each cohort, of shape (cohorts · bits,), and their variance.

    `others` is the effect of all strings that are not selected, which are assumed to set all bits equally often.
    """

    def __init__(self, ones: NDArray[Any], users: NDArray[Any], channel: Channel) -> None:
        zero, one = float(channel.zero), float(channel.one)
        rise, self.bits, self.users = one - zero, ones.shape[1], users.astype(np.float64)
        # This is unbiased, since E[ones] = zero · users + (one − zero) · (users with the bit).
        counts = ((ones - zero * self.users[:, None]) / rise).ravel()
        each = np.repeat(self.users, self.bits)
        there = np.clip(counts, 0, each)
        self.variance = (there * one * (1 - one) + (each - there) * zero * (1 - zero)) / rise**2
        self.spread = np.sqrt(each * zero * (1 - zero)) / rise
        self.share = self.users / self.users.sum()
        self.target, self.others = self.whiten(counts), self.whiten(np.repeat(self.share, self.bits))

    def whiten(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Divide rows by the standard error of a bit that nobody sets. Rows of empty cohorts become zero."""
        return np.divide(rows, self.spread, out=np.zeros_like(rows), where=self.spread > 0)


def _build_design(positions: NDArray[np.int64], seen: _Seen) -> scipy.sparse.csc_array:
    """Return the whitened effect of one user with each candidate, of shape (cohorts · bits, candidates)."""
    number, cohorts, _ = positions.shape
    rows = positions + seen.bits * np.arange(cohorts)[:, None]
    columns = np.broadcast_to(np.arange(number)[:, None, None], positions.shape)
    # If two hashes select the same bit, count the bit once.
    row, column = np.divmod(np.unique(rows * number + columns), number)
    return scipy.sparse.csc_array((seen.others[row], (row, column)), shape=(cohorts * seen.bits, number))


def _select_candidates(design: scipy.sparse.csc_array, seen: _Seen) -> NDArray[np.int64]:
    """Select candidates with a non-negative LASSO, whose penalties exclude most candidates that no user has."""
    number = design.shape[1]
    norms = np.sqrt(np.asarray(design.multiply(design).sum(axis=0)).ravel())
    penalty = math.sqrt(2 * math.log(max(number, 2))) * norms
    # The design and the estimates have no negative entries, so other candidates only reduce what a candidate explains.
    left = np.flatnonzero(design.T @ seen.target > penalty)
    rows = np.column_stack([design[:, left].toarray(), seen.others])
    aim = rows.T @ seen.target - np.append(penalty[left], 0)
    gram = rows.T @ rows
    # Keep the factorisation from failing when one candidate is the sum of others.
    gram[np.diag_indices_from(gram)] *= 1 + 1e-9
    # With G = LLᵀ, ½ xᵀGx − hᵀx equals ½ ‖Lᵀx − L⁻¹h‖² plus a constant.
    lower = scipy.linalg.cholesky(gram, lower=True)
    whitened = scipy.linalg.solve_triangular(lower, aim, lower=True)
    found, _ = scipy.optimize.nnls(lower.T, whitened, maxiter=30 * len(aim))
    return left[np.flatnonzero(found[:-1] > 0)]


def _estimate_candidates(design: NDArray[np.float64], seen: _Seen) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return estimates and standard errors for the selected candidates.

    Three things are random: the channel, the cohorts of a candidate's users, and the bits of unlisted strings. The
    residuals measure the effect of unlisted strings, and scale the channel's variance.
    """
    full = np.column_stack([design, seen.others])
    solve = np.linalg.pinv(full)
    found = solve @ seen.target
    there = np.maximum(found[:-1], 0)
    there *= min(1, seen.users.sum() / max(there.sum(), 1))
    together = np.diag(there) - np.outer(there, there) / seen.users.sum()
    channel = seen.whiten(seen.whiten(seen.variance))
    covariance, left_over = -together, ((seen.target - full @ found) ** 2).sum()
    for cohort in np.flatnonzero(seen.users):
        rows, share = slice(cohort * seen.bits, (cohort + 1) * seen.bits), seen.share[cohort]
        # Compute counts and estimates as if all users of a candidate were in this cohort.
        here = design[rows] / share
        alone = solve[:, rows] @ here
        covariance += share * alone[:-1] @ together @ alone[:-1].T
        left_over -= share * ((here - full[rows] @ alone) @ together * here).sum()
    expected = channel @ (1 - np.einsum("ij,ji->i", full, solve))
    factor = max(1.0, left_over / expected) if expected > 0 else 1.0
    covariance += factor * (solve[:-1] * channel) @ solve[:-1].T
    return found[:-1], np.sqrt(np.maximum(np.diag(covariance), np.finfo(float).tiny))
