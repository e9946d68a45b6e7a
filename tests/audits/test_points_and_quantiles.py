"""Audits of sorted points and of every way to publish a quantile, through the public functions.

Sorted points: the pairs, claims and figures of the harness. Quantiles: the claims are the exact privacy curve of this
very pair of data sets, from the laws, which is at most what is promised; the events are half-lines and bands around
either value. Each audit has at most 0.1% false alarms; docs/privacy/audits.md has its power.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.special
import scipy.stats

import deltahist as dh
from deltahist.kinds.quantile import METHODS, InverseNoise, PointsAround, SmoothNoise
from deltahist.kinds.sorted import noise_law
from deltahist.noise import samplers
from tests.audits.cases import quick, scaled_noise
from tests.audits.harness import ERROR, Pair, audit, design, log_ratio_bound, pure, refuted, report

LINE = dh.Domain((0, 1), (100,))
STEP = LINE.steps[0]


# ------------------------------------------------------------------------------------------ sorted points


def sorted_pair(first, second, near, group, most=None):
    """Two sets of points as a pair of the harness: sums and how they change."""
    sums = []
    for x in (first, second):
        mechanism = dh.kinds.SortedMechanism(near, most or len(x), dh.Budget(1), group)
        sums.append(mechanism.measure(mechanism.check_data(x)))
    return Pair("sorted", np.asarray(first), np.asarray(second), sums[1], sums[0] - sums[1], np.ones_like(sums[0]))


#: first, second, sources, group, most: one row changes by all of δ, two share it, an arrival.
SORTED = {
    "one point": ([0.2, 0.4, 0.7], [0.2, 0.5, 0.7], None, 1, None),
    "past another": ([0.2, 0.42, 0.45], [0.2, 0.45, 0.52], None, 1, None),
    "in groups": ([0.2, 0.4, 0.7, 0.8, 0.9, 0.95], [0.2, 0.5, 0.7, 0.8, 0.9, 0.95], None, 2, None),
    "an arrival": ([0.0999, 0.4, 0.7], [0.4, 0.7], "left", 1, 3),
}
#: Releases that one call gives, where points can stand again and again along a longer line.
COPIES = 100
#: Releases that catch halved noise; a move of two unequal parts needs more (docs/privacy/audits.md has their power).
COARSE = {name: {"releases": 1000, "learning": 250} for name in SORTED}
COARSE["past another"] = {"releases": 2000, "learning": 500}


def call_by_call(near, number, group, epsilon):
    """Releases of sorted points, one call each."""

    def draw(data, releases, rng):
        mechanism = dh.kinds.SortedMechanism(near, number, dh.Budget(epsilon), group)
        drawn = [dh.publishers.publish_mechanism(mechanism, data, rng=rng) for _ in range(releases)]
        return np.array([[*r.values, -1 if r.total is None else r.total] for r in drawn])

    return draw


def end_to_end(near, number, group, epsilon):
    """The same, many to a call: the points stand `COPIES` times along a longer line, and no sum holds those of two."""
    assert near.fixed_membership
    assert number % group == 0
    long = dh.Neighbourhood(dh.Domain((0, COPIES), (100 * COPIES,)), near.delta)
    starts = np.arange(COPIES)[:, None]

    def draw(data, releases, rng):
        mechanism = dh.kinds.SortedMechanism(long, COPIES * number, dh.Budget(epsilon), group)
        assert mechanism.laws == dh.kinds.SortedMechanism(near, number, dh.Budget(epsilon), group).laws
        # From the middle of a lattice step to that of another.
        places = (starts * 100 * STEP + near.domain.lattice(data)[:, 0] + 0.5) * near.domain.step[0]
        out = []
        for _ in range(-(-releases // COPIES)):
            release = dh.publishers.publish_mechanism(mechanism, places.ravel(), rng=rng)
            sums = release.values.reshape(COPIES, -1) - starts * (100 * STEP * group)
            out.append(np.column_stack([sums, np.full(COPIES, release.total // COPIES)]))
        return np.concatenate(out)[:releases]

    return draw


def sorted_audit(name, made=call_by_call, seed=1, releases=None, learning=None):
    first, second, sources, group, most = SORTED[name]
    near = dh.Neighbourhood(LINE, 0.1, sources=sources)
    pair = sorted_pair(first, second, near, group, most)
    epsilon, enough = design(int(np.count_nonzero(pair.change)))
    draw = made(near, most or len(first), group, epsilon)
    # A move of two unequal parts needs more than two equal ones.
    return audit(draw, [pair], pure(epsilon), releases=releases or 2 * enough, seed=seed, learning=learning)


#: An arrival cannot be repeated along the line: there is one end.
REPEATED = [name for name in SORTED if name != "an arrival"]


@pytest.mark.parametrize("name", REPEATED)
def test_sorted_points_hold(name):
    findings = sorted_audit(name, end_to_end)
    assert not refuted(findings), report(findings)


@pytest.mark.parametrize("name", quick(REPEATED, "one point"))
def test_a_tenth_less_noise_is_caught_on_sorted_points(name, monkeypatch):
    scaled_noise(monkeypatch, Fraction(9, 10))
    assert refuted(sorted_audit(name, end_to_end))


def test_sorted_points_hold_call_by_call():
    findings = sorted_audit("an arrival", **COARSE["an arrival"])
    assert not refuted(findings), report(findings)


@pytest.mark.parametrize("name", quick(SORTED, "an arrival"))
def test_halved_noise_is_caught_on_sorted_points(name, monkeypatch):
    scaled_noise(monkeypatch, Fraction(1, 2))
    assert refuted(sorted_audit(name, **COARSE[name]))


def test_an_understated_sensitivity_is_caught_on_sorted_points(monkeypatch):
    """As if the sums of a group were means: the noise is for a move of D/2."""

    def less(*given, **how):
        law = noise_law(*given, **how)
        return type(law)(law.parameter / 2)

    monkeypatch.setattr("deltahist.kinds.sorted.noise_law", less)
    assert refuted(sorted_audit("in groups", end_to_end, **COARSE["in groups"]))


@pytest.mark.slow
def test_arrivals_at_sorted_points_hold_and_a_tenth_less_noise_is_caught(monkeypatch):
    findings = sorted_audit("an arrival")
    assert not refuted(findings), report(findings)
    scaled_noise(monkeypatch, Fraction(9, 10))
    assert refuted(sorted_audit("an arrival"))


# --------------------------------------------------------------------------------------------- quantiles

#: Neighbouring data sets: the median moves by δ between points that stay.
BETWEEN = np.array([0.30, 0.45, 0.60]), np.array([0.30, 0.55, 0.60])
NEAR, EPSILON = dh.Neighbourhood(LINE, 0.1), Fraction(2)
#: Edges, in lattice steps, between which outcomes are told apart.
EDGES = np.arange(1, 1000) * (100 * STEP // 1000) - 0.5


def law_of(method, data):
    """P(outcome between consecutive edges), from the definitions."""
    x = NEAR.domain.lattice(data)[:, 0].astype(float)
    if method == "inverse":
        rate = float(InverseNoise.for_budget(dh.Budget(EPSILON), 1).rate)
        fine = np.arange(0, 100 * STEP, STEP // 50) + STEP // 100
        moves = np.zeros(len(fine))
        for place in x:
            passed = ((place - x[1]) * (fine - x[1]) >= 0) & (np.abs(fine - x[1]) > np.abs(place - x[1]))
            moves += np.where(passed, np.ceil(np.abs(fine - place) / NEAR.radius), 0)
        weight = np.exp(-rate * moves)
        return np.bincount(np.searchsorted(EDGES, fine), weights=weight / weight.sum(), minlength=1000)
    noise = SmoothNoise.for_budget(dh.Budget(EPSILON), 1)
    gaps = np.diff(np.concatenate([[0.0], x, [100.0 * STEP - 1]]))
    local = [max(gaps[1:3]), max(gaps[0] + gaps[1], gaps[1] + gaps[2], gaps[2] + gaps[3])]
    smooth = max(min(NEAR.radius, a) * math.exp(-noise.beta * t) for t, a in enumerate(local))
    cdf = scipy.stats.t(2, x[1], smooth * float(noise.factor)).cdf
    return np.diff(np.concatenate([[0.0], cdf(EDGES), [1.0]]))


def scores_of(drawn, pair):
    """Half-lines and bands around either median."""
    x, y = (int(NEAR.domain.lattice(d)[1, 0]) for d in pair)
    return [drawn, -drawn, np.abs(drawn - x), -np.abs(drawn - x), np.abs(drawn - y), -np.abs(drawn - y)]


def quantile_audit(method, releases, seed=1):
    """Whether a claim of the pair's exact curve is refuted, in either direction.

    On one sample of both data sets each direction picks its event and claim; another sample tests them. Both directions
    look at the same samples and have half of the error each, so that the audit has no more than ERROR.
    """
    rng = np.random.default_rng(seed)
    pair, mechanism = BETWEEN, dh.kinds.QuantileMechanism(NEAR, 0.5, len(BETWEEN[0]), dh.Budget(EPSILON), method)

    def draw(data, number):
        return np.array([dh.publishers.publish_mechanism(mechanism, data, rng=rng).step for _ in range(number)])

    learning, testing = ([draw(data, number) for data in pair] for number in (releases // 4, releases))
    laws = [law_of(method, data) for data in pair]
    for way in (1, -1):
        claims = claims_of(*laws[::way])
        score, cut, (epsilon, delta) = worst_event([scores_of(drawn, pair) for drawn in learning[::way]], claims)
        hits, misses = (int((scores_of(drawn, pair)[score] >= cut).sum()) for drawn in testing[::way])
        if log_ratio_bound(hits, misses, releases, delta, ERROR / 2) > epsilon:
            return True
    return False


def claims_of(p, q):
    """Points (ε, δ) of the exact curve of two laws, P(event) ≤ e^ε Q(event) + δ."""
    losses = np.log(np.maximum(p, 1e-300) / np.maximum(q, 1e-300))
    epsilons = np.unique(np.concatenate([[0.0], np.quantile(losses[losses > 0], [0.2, 0.4, 0.6, 0.8])]))
    # Outcomes are told apart more finely than the bins of the law do: half a percent covers it.
    return [(float(e), float(np.maximum(p - math.exp(e) * q, 0).sum()) + 0.005) for e in epsilons]


def worst_event(scores, claims):
    """The score, the threshold and the claim that look worst, the likelier data set first."""
    best = (-math.inf, 0, 0, claims[0])
    for i, (score, against) in enumerate(zip(*scores, strict=True)):
        for cut in np.unique(np.quantile(score, np.linspace(0.02, 0.98, 40), method="lower")):
            hit, miss = (score >= cut).mean(), (against >= cut).mean()
            for epsilon, delta in claims:
                spread = math.sqrt(hit * (1 - hit) + math.exp(2 * epsilon) * (miss * (1 - miss) + 1e-4))
                best = max(best, ((hit - delta - math.exp(epsilon) * miss) / spread, i, cut, (epsilon, delta)))
    return best[1:]


#: Releases of each data set in the test sample, a quarter as many to learn from (docs/privacy/audits.md: their power).
RELEASES = {"inverse": 1500, "smooth": 1200}
every_method = pytest.mark.parametrize("method", METHODS)


@every_method
def test_the_curve_of_the_pair_is_within_the_promise(method):
    p, q = (law_of(method, data) for data in BETWEEN)
    assert p.sum() == pytest.approx(1)
    assert np.maximum(p - math.exp(EPSILON) * q, 0).sum() <= 1e-6


@every_method
def test_quantiles_hold(method):
    assert not quantile_audit(method, RELEASES[method])


@pytest.mark.slow
@every_method
def test_quantiles_hold_on_a_large_sample(method):
    assert not quantile_audit(method, 10_000, seed=2)


@every_method
def test_halved_noise_is_caught(method, monkeypatch):
    place, student = samplers.QUANTILE_SAMPLERS["inverse"], samplers.QUANTILE_SAMPLERS["smooth"]
    monkeypatch.setitem(samplers.QUANTILE_SAMPLERS, "inverse", lambda rate, **how: place(rate=2 * rate, **how))
    monkeypatch.setitem(samplers.QUANTILE_SAMPLERS, "smooth", lambda scale, **how: student(scale=scale / 2, **how))
    assert quantile_audit(method, RELEASES[method])


def test_an_understated_smooth_sensitivity_is_caught(monkeypatch):
    """As if only the gap above the quantile counted, at half its length."""
    monkeypatch.setattr(
        PointsAround,
        "smooth_sensitivity",
        lambda self, reach, beta, contributions: min(reach, self.longest_stretch(0, contributions)) / 2,
    )
    assert quantile_audit("smooth", RELEASES["smooth"])


def test_moves_that_are_counted_too_long_are_caught(monkeypatch):
    """As if δ were a quarter of what it is: places need more moves and are drawn too rarely."""
    right = samplers.find_stretches
    monkeypatch.setattr(samplers, "find_stretches", lambda d, reach, room, most: right(d, reach // 4, room, most))
    assert quantile_audit("inverse", 800)
