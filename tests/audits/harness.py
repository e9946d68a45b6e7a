"""A statistical audit of mechanisms: find an event on one sample, test it on another.

A mechanism is given as a function that draws releases of a data set. For a pair of neighbouring data sets D, D'
the audit

1. draws a *learning* sample of releases of both and picks the event (a threshold on a score), the direction
   (D against D' or D' against D) and the claim (ε, δ) that look worst for the mechanism;
2. draws a fresh *test* sample and rejects the claim P(event | D) ≤ e^ε P(event | D') + δ if
   (lower confidence bound of P(event | D) − δ) > e^ε · (upper confidence bound of P(event | D')).

Both bounds are Clopper and Pearson's, exact for every sample size.

False alarms: each pair makes one test (the choice of event, direction and claim cost nothing, since they never see
the test sample), its error is split over the two bounds, and the family of pairs shares the error by Bonferroni.
The probability that a mechanism that keeps its promise is rejected on any pair of one audit is at most `ERROR` =
0.1%. Several audits of one test run share it in the same way if each is given its part.

Power: for pure ε and m rows changed by the worst edge, the event "every changed row lies on the far side" has
exactly the ratio e^ε. With n releases of each data set a noise scale multiplied by 0.9 raises the logarithm of
the ratio by ε/9, while the two bounds together give way by about z · (√(1/p) + √(1/q)) / √n. `design` picks the ε of
most power and the n at which such a bug is caught in more than 99% of audits. docs/privacy/audits.md has the
measured figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from deltahist.budget import Budget
from deltahist.mechanisms import Mechanism
from deltahist.preprocessing import Preprocessing
from deltahist.publishers import publication
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.strategies.base import Strategy

#: Probability that an audit rejects a mechanism that keeps its promise (99.9% confidence).
ERROR = 0.001
#: Normal quantiles: of the error of one bound (0.1% over two bounds and a few pairs), and of 99.9% power.
_Z_ERROR, _Z_POWER = 3.7, 3.1
#: Thresholds tried for each score, and rows looked at one by one.
_THRESHOLDS, _ROWS = 60, 4

Draw = Callable[[NDArray[np.int64], int, np.random.Generator], NDArray[np.int64]]
Claim = tuple[float, float]


@dataclass(frozen=True)
class Pair:
    """Two neighbouring data sets and what they change."""

    name: str
    first: NDArray[np.int64]  # counts (domain.shape)
    second: NDArray[np.int64]
    centre: NDArray[np.int64]  # A · second, (k,)
    change: NDArray[np.int64]  # A · (first − second), (k,)
    weight: NDArray[np.int64]  # share of ε of each row as whole numbers, (k,)

    def reversed(self) -> Pair:
        """The same pair the other way round."""
        return Pair(self.name, self.second, self.first, self.centre + self.change, -self.change, self.weight)


@dataclass(frozen=True)
class Event:
    """Score `score` of a release reaches `threshold`; `pair` says which data set should make it likely."""

    pair: Pair
    score: str
    threshold: int
    claim: Claim
    margin: float = -math.inf

    def holds(self, values: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each release (reps, k + 1) is in the event."""
        return scores(self.pair, values)[self.score] >= self.threshold


@dataclass(frozen=True)
class Finding:
    """What the test sample says: `bound`, a lower confidence bound of the log ratio, against the claimed ε."""

    event: Event
    hits: tuple[int, int]
    bound: float

    @property
    def rejected(self) -> bool:
        """Whether the claim is refuted."""
        return self.bound > self.event.claim[0]

    def __str__(self) -> str:
        epsilon, delta = self.event.claim
        verdict = "REFUTED" if self.rejected else "not refuted"
        return (
            f"{self.event.pair.name}: ε = {epsilon:.4g}, δ = {delta:.3g} {verdict} by {self.event.score} >= "
            f"{self.event.threshold}: hits {self.hits[0]} and {self.hits[1]}, log ratio at least {self.bound:.4g}"
        )


def design(rows: int, points: int = 1, factor: float = 0.9) -> tuple[Fraction, int]:
    """(ε, releases of each data set) to catch Laplace noise scaled by `factor` on an edge that changes `rows` rows.

    Exact for changes of equal cost per row, and near enough for others.
    """
    best = (math.inf, Fraction(1))
    for quarter in range(4, 21):
        epsilon = quarter / 4
        p = (1 + math.exp(-epsilon / (rows * points))) ** -rows
        gap = epsilon / factor - epsilon
        spread = math.sqrt(1 / p) + math.sqrt(1 / (p * math.exp(-epsilon / factor)))
        best = min(best, (((_Z_ERROR + _Z_POWER) * spread / gap) ** 2, Fraction(quarter, 4)))
    return best[1], math.ceil(best[0] / 1000) * 1000


# ---------------------------------------------------------------------------------------------- pairs


def row_weights(strategy: Strategy) -> tuple[NDArray[np.object_], int]:
    """Share of every row as whole numbers over one denominator, from the groups."""
    shares, denominator = strategy.whole_shares
    out = np.zeros(strategy.shape[0], dtype=object)
    for group, share in zip(strategy.groups, shares, strict=True):
        out[group.members] = share
    return out, denominator


def edge_costs(strategy: Strategy, near: Neighbourhood, norm: int) -> tuple[NDArray[np.object_], int]:
    """Σ_j (share_j |U_je|)^norm for every edge e, as whole numbers over one denominator; by definition."""
    weight, denominator = row_weights(strategy)
    change = np.abs(strategy.matrix().toarray() @ near.incidence().toarray()).astype(object)
    return ((change * weight[:, None]) ** norm).sum(axis=0), denominator**norm


def make_pair(strategy: Strategy, near: Neighbourhood, edge: NDArray[np.int64], points: int, base: int) -> Pair:
    """`points` points move along one edge at once; every cell holds `base` points besides."""
    u, v = edge.tolist()
    first = np.full(near.domain.size, base, dtype=np.int64)
    second = first.copy()
    if u >= 0:
        first[u] += points
    second[v] += points
    rows = strategy.matrix()
    weight, _ = row_weights(strategy)
    name = f"{points} from {'outside' if u < 0 else u} to {v}"
    shape = near.domain.shape
    change = rows @ (first - second)
    return Pair(name, first.reshape(shape), second.reshape(shape), rows @ second, change, weight.astype(np.int64))


def worst_pairs(
    strategy: Strategy, near: Neighbourhood, *, norm: int = 1, points: int = 1, number: int = 1, base: int = 2
) -> list[Pair]:
    """Pairs along the edges that cost most, chosen from public figures alone.

    With sources the dearest arrival is always among them.
    """
    costs, _ = edge_costs(strategy, near, norm)
    edges = near.edges()
    order = sorted(range(len(edges)), key=lambda e: -costs[e])
    chosen = order[:number]
    arrivals = [e for e in order if edges[e, 0] < 0][:1]
    return [make_pair(strategy, near, edges[e], points, base) for e in dict.fromkeys(chosen + arrivals)]


# --------------------------------------------------------------------------------------------- scores


def scores(pair: Pair, values: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Whole-number scores (reps,) of releases (reps, k + 1) that are larger under `first` than under `second`.

    "all moved" is the exact worst event of integer Laplace noise at threshold 0; "likelihood" is the log-likelihood
    ratio of Laplace noise up to its unit, "linear" that of Gaussian noise; single rows and the published total
    catch what is missing altogether.
    """
    rows = np.flatnonzero(pair.change)
    out = {"total": values[:, -1], "minus total": -values[:, -1]}
    if not len(rows):
        return out
    change, weight = pair.change[rows], pair.weight[rows]
    off = values[:, rows] - pair.centre[rows]
    toward = off * np.sign(change)
    out["all moved"] = (toward - np.abs(change)).min(axis=1)
    out["likelihood"] = ((np.abs(off) - np.abs(off - change)) * weight).sum(axis=1)
    out["linear"] = (off * change * weight * weight).sum(axis=1)
    heaviest = np.argsort(-weight * np.abs(change), kind="stable")[:_ROWS]
    return out | {f"row {rows[j]}": toward[:, j] for j in heaviest}


def _thresholds(both: NDArray[np.int64]) -> NDArray[np.int64]:
    values = np.unique(both)
    if len(values) <= _THRESHOLDS:
        return values
    return np.unique(np.quantile(both, np.linspace(0, 1, _THRESHOLDS), method="lower"))


def _margins(hits: NDArray[np.int64], false_hits: NDArray[np.int64], n: int, claim: Claim) -> NDArray[np.float64]:
    """By how many standard errors the log ratio seems to exceed ε, from smoothed frequencies."""
    epsilon, delta = claim
    p, q = (hits + 0.5) / (n + 1), (false_hits + 1) / (n + 1)
    over = np.maximum(p - delta, 1e-12)
    error = np.sqrt(p * (1 - p) / over**2 + (1 - np.minimum(q, 1)) / q) / math.sqrt(n)
    return (np.log(over / q) - epsilon) / np.maximum(error, 1e-9)


def learn(pair: Pair, first: NDArray[np.int64], second: NDArray[np.int64], claims: Iterable[Claim]) -> Event:
    """The event, direction and claim that look worst on one sample of releases of both data sets."""
    best = Event(pair, "total", 0, next(iter(claims)))
    for way, yes, no in ((pair, first, second), (pair.reversed(), second, first)):
        others = scores(way, no)
        for name, score in scores(way, yes).items():
            against = others[name]
            cuts = _thresholds(np.concatenate([score, against]))
            hits = len(score) - np.searchsorted(np.sort(score), cuts)
            false_hits = len(against) - np.searchsorted(np.sort(against), cuts)
            for claim in claims:
                margins = _margins(hits, false_hits, len(score), claim)
                top = int(np.argmax(margins))
                if margins[top] > best.margin:
                    best = Event(way, name, int(cuts[top]), claim, float(margins[top]))
    return best


# ----------------------------------------------------------------------------------------------- test


def log_ratio_bound(hits: int, false_hits: int, n: int, delta: float, error: float) -> float:
    """Lower confidence bound of log((p − δ) / q) from n draws each; −inf if p may be no more than δ."""
    low = float(scipy.stats.beta.ppf(error / 2, hits, n - hits + 1)) if hits else 0.0
    high = float(scipy.stats.beta.ppf(1 - error / 2, false_hits + 1, n - false_hits)) if false_hits < n else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf


def check(event: Event, first: NDArray[np.int64], second: NDArray[np.int64], error: float) -> Finding:
    """Test an event on fresh releases of its pair's two data sets."""
    hits, false_hits = int(event.holds(first).sum()), int(event.holds(second).sum())
    return Finding(event, (hits, false_hits), log_ratio_bound(hits, false_hits, len(first), event.claim[1], error))


def audit(
    draw: Draw,
    pairs: list[Pair],
    claims: Callable[[Pair], list[Claim]],
    *,
    releases: int,
    seed: int,
    learning: int | None = None,
    error: float = ERROR,
) -> list[Finding]:
    """Audit a mechanism on some pairs; it keeps its promise unless a finding is `rejected`.

    `draw` makes releases (how many, k + 1), the last column the published total or −1. All (ε, δ) of `claims` must hold
    for a pair. `releases` is the size of the test sample of each data set; a quarter as many, 1000 at least, are learnt
    from unless `learning` is given. `error` is the probability of any false alarm.
    """
    rng = np.random.default_rng(seed)
    findings = []
    for pair in pairs:
        some = learning or max(1000, releases // 4)
        event = learn(pair, draw(pair.first, some, rng), draw(pair.second, some, rng), claims(pair))
        yes, no = draw(event.pair.first, releases, rng), draw(event.pair.second, releases, rng)
        findings.append(check(event, yes, no, error / len(pairs)))
    return findings


def refuted(findings: list[Finding]) -> bool:
    """Whether any claim was refuted."""
    return any(finding.rejected for finding in findings)


def report(findings: list[Finding]) -> str:
    """All findings, one line each."""
    return "\n".join(str(finding) for finding in findings)


# --------------------------------------------------------------------------------------------- claims


def pure(epsilon: Fraction | float) -> Callable[[Pair], list[Claim]]:
    """Pure ε: one claim, δ = 0."""
    return lambda pair: [(float(epsilon), 0.0)]


def gaussian(rho: Fraction | float, number: int = 24) -> Callable[[Pair], list[Claim]]:
    """The exact privacy curve of integer Gaussian noise for which this very pair costs ρ.

    The variance is worked out from ρ and the pair, never from the package's own sensitivity: V / share² with
    V = Σ share² U² / (2ρ). This is stronger than ρ-zCDP, which the law implies (histogram.md, theorem 2), and leaves
    no slack: the curve is a finite sum over the sufficient statistic.
    """

    def curve(pair: Pair) -> list[Claim]:
        loss, chance = gaussian_losses(pair, float(rho))
        order = np.cumsum(chance[::-1])[::-1]
        typical = loss[(order > 1e-3) & (order < 1 - 1e-3) & (loss >= 0)]
        epsilons = np.quantile(typical, np.linspace(0, 1, number)) if len(typical) else np.zeros(1)
        return [(float(e), hockey_stick(loss, chance, float(e))) for e in np.unique([0.0, *epsilons])]

    return curve


def gaussian_losses(pair: Pair, rho: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values and probabilities of the privacy loss log P(y | first) / P(y | second) under `first`."""
    rows = np.flatnonzero(pair.change)
    change, weight = pair.change[rows].astype(float), pair.weight[rows].astype(float)
    cost = float((weight**2 * change**2).sum())
    v = cost / (2 * rho)
    law: dict[int, float] = {0: 1.0}  # of T = Σ weight² U k, whole numbers
    for u, w in zip(pair.change[rows].tolist(), pair.weight[rows].tolist(), strict=True):
        law = _add(law, u * w * w, v / (w * w))
    values = np.array(sorted(law))
    # Σ ((k + U)² − k²) weight² / (2v)
    return (values + cost / 2) / v, np.array([law[t] for t in values.tolist()])


def _add(law: dict[int, float], step: int, variance: float) -> dict[int, float]:
    """The law of T + step · k for an independent discrete Gaussian k."""
    far = math.ceil(9 * math.sqrt(variance)) + 1
    k = np.arange(-far, far + 1)
    pmf = np.exp(-(k**2) / (2 * variance))
    pmf /= pmf.sum()
    old, chance = np.array(list(law)), np.array(list(law.values()))
    total, place = np.unique((old[:, None] + step * k[None, :]).ravel(), return_inverse=True)
    mass = np.bincount(place, weights=np.outer(chance, pmf).ravel())
    return dict(zip(total.tolist(), mass.tolist(), strict=True))


def hockey_stick(loss: NDArray[np.float64], chance: NDArray[np.float64], epsilon: float) -> float:
    """Smallest δ for which (ε, δ) holds: Σ P · max(0, 1 − e^(ε − loss))."""
    over = loss > epsilon
    return float((chance[over] * -np.expm1(epsilon - loss[over])).sum()) + 1e-12


# -------------------------------------------------------------------------------------------- drawing


def through_publish(near: Neighbourhood, strategy: Strategy, *, made_once: bool = False, **options: Any) -> Draw:
    """Releases from the real `publish`, one call each; with `made_once` all calls of a sample share a mechanism."""

    def draw(counts: NDArray[np.int64], number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        publish: Any = partial(publication.publish, near=near, strategy=strategy, **options)
        if made_once:
            publish = partial(publication.publish_mechanism, mechanism_of(near, strategy, **options))
        out = np.empty((number, strategy.shape[0] + 1), dtype=np.int64)
        for i in range(number):
            release = publish(counts, rng=rng)
            out[i, :-1] = release.values
            out[i, -1] = -1 if release.total is None else release.total
        return out

    return draw


def mechanism_of(
    near: Neighbourhood, strategy: Strategy, *, contributions: int = 1, **budget: Fraction | float
) -> Mechanism:
    """What `publish` makes of the same words before it looks at counts."""
    return Mechanism(near, strategy, Budget(**budget), Preprocessing(contributions))  # type: ignore[arg-type]


def draw_noise(mechanism: Mechanism, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draws (number, draws) for many releases, with the samplers that `publish` uses."""
    out = np.empty((number, mechanism.strategy.draws), dtype=np.int64)
    for group, law in zip(mechanism.strategy.groups, mechanism.laws, strict=True):
        shape = out[:, group.members].shape
        out[:, group.members] = publication.sample_law(law, shape, rng) if math.prod(shape) else 0
    return out


def at_once(
    near: Neighbourhood, strategy: Strategy, read: Callable[[Any], Any] = lambda values: values, **options: Any
) -> Draw:
    """Releases drawn in one go, each passed through `read`, which may lose but not add."""

    def draw(counts: NDArray[np.int64], number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        noise = draw_noise(mechanism_of(near, strategy, **options), number, rng)
        return np.column_stack([read(strategy.measure(counts) + strategy.scatter(noise)), np.full(number, -1)])

    return draw
