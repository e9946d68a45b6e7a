"""Rappor: what users report of a text each, as noisy bits of a Bloom filter; the public half of it.

Source: Erlingsson, Pihur and Korolova 2014; Koufogiannis, Han and Pappas 2015, section 4.1, for relaxing it.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deltahist.errors import InputError, one_of, positive, whole
from deltahist.kinds.rappor.channels import STEPS, Channel, Threshold, probability
from deltahist.kinds.rappor.decoder import decode_counts
from deltahist.mechanisms.base import MOST_CERTAIN
from deltahist.privacy import Guarantee

if TYPE_CHECKING:
    import pandas as pd

#: Channels: binary channels that are refined exactly. Laplace: Laplace noise that is refined, then cut.
FORMS = ("channels", "laplace")


@dataclass(frozen=True)
class Rappor:
    """Settings of a collection: the reports of a user's text, and their guarantee.

    A text sets `hashes` of the `bits` of a filter; which ones depends on the user's cohort, too. Each bit is replaced
    once and for all by a 1 or a 0, with probability f/2 each (the permanent bits, which the user keeps secret). A
    report says 1 with probability q for a permanent 1, and with probability p for a permanent 0.

    Parameters
    ----------
    bits : m, of the filter. hashes : k, bits that a text sets at most. cohorts : groups of users with other hashes.
    f : in (0, 1]. p, q : 0 ≤ p < q ≤ 1. Fractions are taken as they are, floats as the binary numbers they are.
    form : how bits are made noisy, and less so later on. "channels": exactly with f, p and q. "laplace": by Laplace
        noise that is cut at a threshold, as in 2015, eq. (45) and (46); f, p and q are met nearly (docs/rappor.md).

    Raises
    ------
    InputError
        On numbers out of range, p ≥ q, or p and q that cut Laplace noise cannot give.

    >>> mechanism = Rappor(bits=128, hashes=2, cohorts=8, f=0.5, p=0.5, q=0.75)
    >>> round(float(mechanism.guarantee.epsilon), 3), round(float(mechanism.report_guarantee.epsilon), 3)
    (4.394, 1.074)
    >>> mechanism.relaxed(f=0.25).f
    Fraction(1, 4)
    """

    bits: int = 128
    hashes: int = 2
    cohorts: int = 8
    f: Fraction | float = Fraction(1, 2)
    p: Fraction | float = Fraction(1, 2)
    q: Fraction | float = Fraction(3, 4)
    form: str = "channels"

    def __post_init__(self) -> None:
        for name in ("bits", "hashes", "cohorts"):
            object.__setattr__(self, name, whole(**{name: getattr(self, name)}))
        if self.hashes > self.bits:
            raise InputError(
                f"hashes is {self.hashes}: a filter of {self.bits} bits has no room for more than that"
            )
        for name in ("f", "p", "q"):
            object.__setattr__(self, name, probability(**{name: getattr(self, name)}))
        if self.f == 0:
            raise InputError(
                "f is 0: it must be above 0, or the permanent bits are the true ones and nothing is private"
            )
        if self.p >= self.q:
            raise InputError(
                f"p is {float(self.p):g} and q is {float(self.q):g}: p must be less than q, since a permanent 1 is "
                "reported as 1 more often than a permanent 0 (are they swapped?)"
            )
        one_of(FORMS, form=self.form)
        if self.form == "laplace" and self.f == 1:
            raise InputError(
                "f is 1: Laplace noise always tells something, so that f must be below 1 with it"
            )
        self.permanent, self.instantaneous  # noqa: B018  thresholds may be impossible

    @classmethod
    def costing(cls, epsilon: float, **fields: Any) -> Rappor:
        """Return the settings with the least noise in the permanent bits under which all reports cost `epsilon`.

        Parameters
        ----------
        epsilon : of `guarantee`, which is at most that. fields : as for `Rappor`, without f.

        Raises
        ------
        InputError
            On an ε that is not above zero.

        >>> mechanism = Rappor.costing(4.0, hashes=2, p=0, q=1)
        >>> float(mechanism.guarantee.epsilon) <= 4, round(float(mechanism.f), 6)
        (True, 0.537883)
        """
        each = positive(epsilon=epsilon) / (2 * whole(hashes=fields.get("hashes", cls.hashes)))
        if fields.get("form") == "laplace":
            f = math.exp(-each / 2) / math.cosh(each / (2 * STEPS))
        else:
            f = 2 * math.exp(-each) / (1 + math.exp(-each))
        # A little more noise than that, for the rounding of floats, which grows with ε.
        return cls(f=min(Fraction(1), Fraction(f) * (1 + Fraction(math.ceil(each), 10**12))), **fields)

    @functools.cached_property
    def permanent(self) -> Channel | Threshold:
        """From true bits to permanent ones."""
        flips = Channel.flips(Fraction(self.f) / 2)
        return flips if self.form == "channels" else Threshold.near(flips)

    @functools.cached_property
    def instantaneous(self) -> Channel | Threshold:
        """From permanent bits to a report."""
        channel = Channel(Fraction(self.p), Fraction(self.q))
        return channel if self.form == "channels" or channel.exact else Threshold.near(channel)

    @property
    def report(self) -> Channel:
        """From true bits to a report: p* and q*, how often a 0 and a 1 are reported as 1."""
        return self.permanent.channel.then(self.instantaneous.channel)

    @property
    def guarantee(self) -> Guarantee:
        """ε_∞: all that one user ever reports, now and at all coarser settings before, under another text.

        Two texts differ in at most 2k bits; a permanent bit costs ln((1 − f/2)/(f/2)), with Laplace noise 2 ln(1/f).
        """
        if isinstance(self.permanent, Threshold):
            return Guarantee(2 * self.hashes * self.permanent.epsilon)
        return _guarantee(self.permanent, self.hashes)

    @property
    def report_guarantee(self) -> Guarantee:
        """ε_1: one report with all its coarser versions before.

        k ln(q* (1 − p*) / (p* (1 − q*))), since of the bits in which two texts differ each sets k at most. With Laplace
        noise a report that is refined can cost more than that, so that it is ε_∞ there (docs/privacy/rappor.md).
        """
        return self.guarantee if self.form == "laplace" else _guarantee(self.report, self.hashes)

    @property
    def lone_report_guarantee(self) -> Guarantee:
        """The same formula for one report that no other one comes with, in either form."""
        return _guarantee(self.report, self.hashes)

    @property
    def weakness(self) -> str | None:
        """Why hardly anything is protected; None if it is not so (docs/privacy/weak.md, rule 1)."""
        sure = self.guarantee.certainty
        if sure <= MOST_CERTAIN:
            return None
        return f"whoever holds two texts for equally likely can be {100 * sure:.4g}% sure of one after many reports"

    def relaxed(
        self,
        *,
        f: Fraction | float | None = None,
        p: Fraction | float | None = None,
        q: Fraction | float | None = None,
    ) -> Rappor:
        """Return the settings with less noise.

        Raises
        ------
        InputError
            If earlier reports would have told more than later ones (`check_relaxes`).
        """
        given: dict[str, Any] = {"f": f, "p": p, "q": q}
        finer = replace(self, **{name: value for name, value in given.items() if value is not None})
        self.check_relaxes(finer)
        return finer

    def check_relaxes(self, finer: Rappor) -> None:
        """Raise InputError unless reports of these settings are coarser versions of reports of `finer` ones.

        That is so if f does not rise and neither q*/p* nor (1 − p*)/(1 − q*) falls. With Laplace noise no ε may fall.
        """
        for name in ("bits", "hashes", "cohorts", "form"):
            now, then = getattr(self, name), getattr(finer, name)
            if now != then:
                raise InputError(
                    f"{name} is {then!r}, and was {now!r}: only f, p and q can be relaxed; for all else begin anew, "
                    "which costs an ε of its own on top"
                )
        if finer.f > self.f:
            raise InputError(
                f"f is {float(finer.f):g}, and was {float(self.f):g}: it may only fall, since what was told cannot be "
                "taken back"
            )
        try:
            if self.form == "channels":
                self.report.remainder(finer.report)
                self.to_report(finer).remainder(finer.instantaneous.channel)
            elif not finer.instantaneous.exact and not _no_larger(self.instantaneous, finer.instantaneous):
                raise InputError("the Laplace noise between permanent bits and reports would grow")
        except InputError as problem:
            raise InputError(
                f"f, p, q are {finer.numbers}, and were {self.numbers}: {problem}; lower p, or raise q"
            ) from problem

    def to_report(self, finer: Rappor) -> Channel:
        """Return the channel from permanent bits of `finer` settings to a report of these ones."""
        return self.permanent.channel.remainder(finer.permanent.channel).then(self.instantaneous.channel)

    @property
    def numbers(self) -> str:
        """f, p and q for messages."""
        return ", ".join(f"{float(x):g}" for x in (self.f, self.p, self.q))

    def describe(self) -> dict[str, Any]:
        """Describe the settings as JSON."""
        return asdict(self) | {name: str(getattr(self, name)) for name in ("f", "p", "q")}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> Rappor:
        """Make the settings that `describe` described.

        >>> Rappor.from_description(Rappor(f=0.25).describe()) == Rappor(f=0.25)
        True
        """
        exact = {name: Fraction(description[name]) for name in ("f", "p", "q")}
        return cls(**(description | exact))

    def positions(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the bits that texts set in each cohort, (texts, cohorts, k): BLAKE2 keyed by cohort and hash number.

        Raises
        ------
        InputError
            On anything but text.

        >>> Rappor(bits=16, cohorts=2).positions(["cafe"]).shape
        (1, 2, 2)
        """
        out = np.empty((len(texts), self.cohorts, self.hashes), dtype=np.int64)
        for number, text in enumerate(texts):
            if text is None or (isinstance(text, float) and math.isnan(text)):
                raise InputError(f"value {number} is missing ({text!r}): leave out who has no text")
            if not isinstance(text, str):
                raise InputError(
                    f"value {number} is {text!r}: it must be text; write numbers as text, str(...)"
                )
            data = text.encode("utf-8", "surrogatepass")
            for cohort in range(self.cohorts):
                for index in range(self.hashes):
                    key = f"{cohort}/{index}".encode()
                    digest = hashlib.blake2b(data, digest_size=8, key=key).digest()
                    out[number, cohort, index] = int.from_bytes(digest, "little") % self.bits
        return out

    def decode(
        self, ones: ArrayLike, users: ArrayLike, candidates: Sequence[str], *, level: float = 0.05
    ) -> pd.DataFrame:
        """Estimate how many users have each candidate, from the ones that were reported (docs/rappor.md).

        Parameters
        ----------
        ones : (cohorts, bits) reports that say 1. users : (cohorts,) reports; each user's latest one only.
        candidates : texts that are looked for, all different.
        level : probability that any candidate that nobody has is found significant (Bonferroni).

        Returns
        -------
        DataFrame: candidate, estimate (users), std_error (users; NaN where the selection left it out), p_value,
        significant (p_value at most level / candidates). One row for each candidate, in their order.

        Raises
        ------
        InputError
            On other shapes, candidates that stand twice, a level outside 0 to 1, or f = 1.

        >>> mechanism = Rappor(bits=16, cohorts=2, f=0.01, p=0, q=1)
        >>> at = mechanism.positions(["cafe"])[0]
        >>> ones = np.zeros((2, 16))
        >>> for cohort in range(2):
        ...     ones[cohort, at[cohort]] = 500
        >>> mechanism.decode(ones, [500, 500], ["cafe", "museum"])["significant"].tolist()
        [True, False]
        """
        names = listed(candidates)
        twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
        if twice:
            raise InputError(f"candidate {sorted(map(str, twice))[0]!r} stands twice: list each text once")
        return decode_counts(
            np.asarray(ones),
            np.asarray(users),
            self.positions(names),
            self.bits,
            self.report.zero,
            self.report.one,
            names,
            level,
        )


@dataclass(frozen=True, eq=False)
class Reports:
    """One report of each user: all that leaves them.

    Parameters
    ----------
    mechanism : with what settings.
    cohorts : (users,) from 0, public. bits : (users, m) of 0 and 1.
    publishable : False where the noise came from a seeded generator.

    Raises
    ------
    InputError
        On shapes, cohorts or bits that do not fit the settings.

    >>> Reports(Rappor(bits=4, cohorts=2), [0, 1], [[1, 0, 0, 1], [0, 1, 0, 1]]).ones.tolist()
    [[1, 0, 0, 1], [0, 1, 0, 1]]
    """

    mechanism: Rappor
    cohorts: NDArray[np.int64]
    bits: NDArray[np.uint8]
    publishable: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cohorts", check_cohorts(self.cohorts, self.mechanism))
        bits = np.asarray(self.bits)
        if bits.shape != (len(self.cohorts), self.mechanism.bits) or not np.isin(bits, (0, 1)).all():
            raise InputError(
                f"bits have the shape {bits.shape}: they must be 0 or 1, a row of {self.mechanism.bits} for each of "
                f"{len(self.cohorts)} users"
            )
        object.__setattr__(self, "bits", bits.astype(np.uint8, copy=False))

    def __len__(self) -> int:
        return len(self.cohorts)

    @functools.cached_property
    def ones(self) -> NDArray[np.int64]:
        """Reports that say 1, (cohorts, m); several collections add up."""
        order = np.argsort(self.cohorts, kind="stable")
        starts = np.searchsorted(self.cohorts[order], np.arange(self.mechanism.cohorts + 1))
        parts = [self.bits[order[a:b]].sum(axis=0, dtype=np.int64) for a, b in itertools.pairwise(starts)]
        return np.array(parts)

    @property
    def users(self) -> NDArray[np.int64]:
        """Users of each cohort, (cohorts,)."""
        return np.bincount(self.cohorts, minlength=self.mechanism.cohorts)

    def decode(self, candidates: Sequence[str], *, level: float = 0.05) -> pd.DataFrame:
        """Estimate how many users have each candidate: `Rappor.decode`."""
        return self.mechanism.decode(self.ones, self.users, candidates, level=level)


def check_cohorts(cohorts: ArrayLike, mechanism: Rappor) -> NDArray[np.int64]:
    """Cohorts as (users,) int64, or InputError unless they are whole numbers from 0 to below `mechanism.cohorts`."""
    array = np.asarray(cohorts)
    if array.ndim != 1 or not (array.size == 0 or np.issubdtype(array.dtype, np.integer)):
        raise InputError(
            f"cohorts are an array of {array.dtype} and shape {array.shape}: they must be one whole number per user"
        )
    wrong = array[(array < 0) | (array >= mechanism.cohorts)]
    if len(wrong):
        raise InputError(
            f"cohort {int(wrong[0])} is unknown: there are {mechanism.cohorts}, numbered from 0 (are they of other "
            "settings?)"
        )
    return array.astype(np.int64)


def _guarantee(channel: Channel, hashes: int) -> Guarantee:
    """k ln(q (1 − p) / (p (1 − q))), rounded up; p and q are off by no more than the rounding of floats."""
    rounding = 0 if channel.silent else Fraction(hashes, 10**14)
    return Guarantee(Fraction(hashes * channel.log_odds) * (1 + Fraction(1, 10**14)) + rounding)


def _no_larger(coarse: Channel | Threshold, finer: Channel | Threshold) -> bool:
    """Whether finer noise is no larger than coarse noise, for cut Laplace noise or none."""
    return isinstance(coarse, Threshold) and isinstance(finer, Threshold) and finer.epsilon >= coarse.epsilon


def listed(texts: Iterable[str]) -> list[str]:
    """Texts as a list; InputError for a single text, whose letters nobody means."""
    if isinstance(texts, str):
        raise InputError(f"texts are {texts[:60]!r}, which is one text: give a list of them")
    return list(texts)
