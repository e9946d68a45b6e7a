"""Calibrated non-negative estimates: draws against dense matrices, intervals, and when they stand back."""

import importlib
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given, settings as property_settings, strategies as st

import deltahist as dh
from deltahist.decode import Metric, Posterior, box_sums, posterior
from deltahist.decode.posterior import MEANS, Precision, even_shares, sites
from deltahist.strategies import Cumulative, Flow, Hierarchical, Identity, Optimal, Spectral, Tents
from tests.decode.test_metric import KINDS, dense, random_metric, waves

# Their names are also those of functions.
module = importlib.import_module("deltahist.decode.posterior")


def drawing(metric, covariance, known):
    """Draws normal noise of a covariance matrix on the metric's grid."""
    root = np.linalg.cholesky(covariance)

    def noise(rng):
        field = (root @ rng.normal(size=len(root))).reshape(metric.grid)
        return field - field.mean() if known else field

    return noise


def white(shape, variance):
    return Metric(np.full(shape, float(variance)), shape, False, tuple(slice(0, n) for n in shape))


# --- the mean


@pytest.mark.parametrize("shape", [(60,), (12, 15)])
def test_under_white_noise_every_cell_speaks_for_itself(shape, monkeypatch):
    """Then all others say nothing of a cell: its mean is the prior's under the noise, and so is its variance."""
    monkeypatch.setattr(module, "_SOLVED", 1e-9)
    monkeypatch.setattr(module, "_ASTRAY", np.inf)  # a total that is not known is off by more than chance
    rng = np.random.default_rng(1)
    field = rng.choice([0.0, 0.0, 20.0], shape) + rng.normal(0, 2, shape)
    found = posterior(field, white(shape, 4), None, lambda rng: rng.normal(0, 2, shape))
    own = sites(field, np.full(shape, 4.0), even_shares(shape))
    assert np.allclose(found.cells, own.mean, rtol=1e-3, atol=1e-4)
    # Forty draws: the mean of all variances is known to √(2 / 40 / cells), 3% at the least number of cells.
    ratio = (found.errors.astype(float) ** 2).mean(axis=0) / own.variance
    assert ratio.mean() == pytest.approx(1, abs=5 * np.sqrt(2 / module.DRAWS / field.size))


@pytest.mark.parametrize(("periodic", "pad"), KINDS)
def test_cavities_are_those_of_cells_that_are_alike(periodic, pad):
    """Where every cell is known with a precision γ of its own: from the diagonal of (M + γ)⁻¹, by a dense inverse."""
    metric = random_metric(np.random.default_rng(3), (6, 5), periodic, False, pad)
    spread_left, noise = module._cavities(metric)
    covariance = waves(metric)
    assert noise == pytest.approx(np.trace(covariance) / len(covariance))
    for precision in (0.01, 0.3, 10.0):
        joined = np.linalg.inv(covariance) + precision * np.eye(len(covariance))
        left = np.diag(np.linalg.inv(joined)).mean()
        by_others = left / (1 - precision * left)
        assert np.exp(spread_left(np.log(left))) == pytest.approx(by_others, rel=0.02)  # between 200 places


def test_means_are_near_those_of_the_joint_law(monkeypatch):
    """Four cells with correlated noise, by draws from the prior, each weighed by the noise's density.

    Expectation propagation is not exact, and knows of the noise only what remains on average: over all a third of the
    posterior's standard error is allowed, where unbiased estimates are off by more than all of it.
    """
    monkeypatch.setattr(module, "_STEPS", 0)
    monkeypatch.setattr(module, "_ASTRAY", np.inf)
    monkeypatch.setattr(module, "_CLEAR", -np.inf)
    rng = np.random.default_rng(1)
    kind = rng.integers(0, len(MEANS) + 1, (300_000, 4))
    counts = rng.exponential(1, kind.shape) * np.append(0, MEANS)[kind]
    off, unbiased = [], []
    for _ in range(8):
        metric = random_metric(rng, (4,), False, False)
        metric.variance[...] *= 4
        covariance = waves(metric)
        field = np.array([0.0, 9.0, 1.0, 0.0]) + np.linalg.cholesky(covariance) @ rng.normal(size=4)
        away = counts - field
        weight = -((away @ np.linalg.inv(covariance)) * away).sum(axis=1) / 2
        weight = np.exp(weight - weight.max())
        weight /= weight.sum()
        mean = weight @ counts
        error = np.sqrt(weight @ (counts - mean) ** 2)
        found = posterior(field, metric, None, drawing(metric, covariance, False))
        off.append((found.cells - mean) / error)
        unbiased.append((field - mean) / error)
    assert np.sqrt(np.mean(np.square(off))) < 1 / 3
    assert np.sqrt(np.mean(np.square(unbiased))) > 1


# --- the draws


def sandwich(precision, cells, noise):
    """Covariance of (M + D)⁻¹ (M η + D ζ) along changes, η of covariance `noise`, ζ of D⁻¹."""
    matrix, span = dense(precision, cells)
    diagonal = np.diag(cells.ravel())
    inverse = span @ np.linalg.solve(span.T @ matrix @ span, span.T)
    own = matrix - diagonal
    return inverse @ (own @ noise @ own + diagonal) @ inverse.T


def too_unlike(errors, covariance, rng):
    """Whether draws contradict a covariance: in one of 6,000 cases where it is theirs.

    Squares of fifty linear functions, each of which has the law χ² with as many degrees of freedom as there are draws.
    """
    queries = rng.normal(size=(50, len(covariance)))
    queries[: len(covariance)] = np.eye(len(covariance))[:50]
    squares = ((errors @ queries.T) ** 2).sum(axis=0)
    law = scipy.stats.chi2(len(errors))
    return any(
        not law.ppf(1 / 12_000 / 50) <= square / (q @ covariance @ q) <= law.isf(1 / 12_000 / 50)
        for square, q in zip(squares, queries, strict=True)
    )


@pytest.mark.parametrize(("periodic", "pad", "known"), [(False, 0, True), (True, 0, False), (True, 2, True)])
def test_draws_have_the_covariance_of_the_joined_errors(known, periodic, pad, monkeypatch):
    """4,000 draws; the noise is not that of the metric. Three tests, in all one false alarm in 2,000."""
    monkeypatch.setattr(module, "DRAWS", 4000)
    monkeypatch.setattr(module, "_DRAWN", 1e-8)
    rng = np.random.default_rng(2)
    precision = Precision(random_metric(rng, (4, 5), periodic, known, pad), known)
    grid = precision.metric.grid
    size = int(np.prod(grid))
    cells = np.zeros(grid)
    cells[precision.metric.inside] = rng.uniform(0.02, 1, (4, 5)) ** 2
    mixed = rng.normal(size=(size, size))
    noise = mixed @ mixed.T / 4 + np.eye(size)
    centre = np.eye(size) - known / size
    own = centre @ noise @ centre
    errors, _ = module._draw_errors(precision, cells, drawing(precision.metric, noise, known), np.zeros((4, 5)))
    inside = np.zeros(grid, dtype=bool)
    inside[precision.metric.inside] = True
    keep = np.ix_(inside.ravel(), inside.ravel())
    errors = errors.reshape(len(errors), -1).astype(float)
    assert not too_unlike(errors, sandwich(precision, cells, own)[keep], np.random.default_rng(3))
    # The test can fail: by a tenth of the noise, and were the noise the metric's own.
    assert too_unlike(errors, sandwich(precision, cells, 0.8 * own)[keep], np.random.default_rng(3))
    assert too_unlike(errors, 0.9 * sandwich(precision, cells, own)[keep], np.random.default_rng(3))
    if known:
        assert np.allclose(errors.sum(axis=1), 0, atol=1e-3)


def test_residuals_as_drawn_have_no_excess_and_bias_has():
    """25 residuals η − e of the model itself, and the same with as much bias as noise on one half of the map."""
    rng = np.random.default_rng(5)
    precision = Precision(random_metric(rng, (12, 12), False, True), True)
    cells = rng.uniform(0.02, 1, (12, 12))
    covariance = waves(precision.metric) + 1e-9 * np.eye(144)
    noise = drawing(precision.metric, covariance, True)
    bias = np.where(np.arange(12) < 6, 1.0, -1.0) * np.sqrt(precision.metric.variance.mean())
    found = []
    for _ in range(25):
        drawn = noise(rng)
        right = precision.of_noise(drawn) + np.sqrt(cells) * rng.normal(size=drawn.shape)
        residual = drawn - precision.solver(cells)(right.astype(np.float32), 1e-6)
        found.append([module._draw_errors(precision, cells, noise, r)[1] for r in (residual, residual + bias)])
    fair, biased = np.array(found).T
    # Beyond two standard errors, and the residual's law is skew: one in twenty, eight of 25 once in 20,000.
    assert (fair > 0).sum() < 8
    assert np.median(fair) == 0
    assert (biased > 0.5).all()


def test_more_cells_than_are_drawn_at_a_time_are_drawn_one_by_one(monkeypatch):
    monkeypatch.setattr(module, "_AT_A_TIME", 10)
    rng = np.random.default_rng(7)
    precision = Precision(random_metric(rng, (6, 7), False, True), True)
    errors, _ = module._draw_errors(
        precision, rng.uniform(0.1, 1, (6, 7)), lambda rng: rng.normal(size=(6, 7)), np.zeros((6, 7))
    )
    assert errors.shape == (module.DRAWS, 6, 7)
    assert (errors.std(axis=(1, 2)) > 0).all()


def test_what_stands_out_is_decided_by_the_same_noise_every_time():
    drawn = []

    def noise(rng):
        drawn.append(rng.normal(size=(4, 4)))
        return drawn[-1]

    for _ in range(2):
        module._stands_out(np.ones((4, 4)), white((4, 4), 1.0), noise)
    assert np.array_equal(drawn[: module._LEVELS], drawn[module._LEVELS :])


def test_means_below_zero_are_cut_and_not_turned_around(monkeypatch):
    means = np.array([[-3.0, 2.0], [6.0, -0.5]])
    monkeypatch.setattr(module, "_settle", lambda *_: (means, np.ones((2, 2))))
    monkeypatch.setattr(module, "_ASTRAY", np.inf)
    metric = replace(white((2, 2), 1.0), slope=3.0)
    found = posterior(means, metric, 8.0, lambda rng: rng.normal(size=(2, 2)))
    assert found.cells.tolist() == [[0, 2], [6, 0]]


def test_boxes_lie_in_the_map_and_have_all_sizes():
    spans = module._draw_boxes((1, 7, 300), np.random.default_rng(6))
    for (low, high), n in zip(spans, (1, 7, 300), strict=True):
        assert low.min() == 0
        assert 0.98 * n < high.max() <= n  # one in twenty of 512 boxes ends with the map, or nearly so
        assert (high > low).all()
    assert (spans[1][1] == 7).any()
    sides = spans[2][1] - spans[2][0]
    assert np.median(sides) == pytest.approx(np.sqrt(300), rel=0.4)


# --- what is said of errors


def of(slope=2.0, excess=0.0, errors=None):
    errors = np.ones((module.DRAWS, 2, 2), dtype=np.float32) if errors is None else errors
    return Posterior(np.ones((2, 2)), errors, slope, excess)


def test_doubt_is_a_share_of_the_unbiased_variance_and_what_is_known_stays_known():
    blue, own, unbiased = of(), np.array([0.0, 0.0, 1.0]), np.array([0.0, 100.0, 100.0])
    times, share = module._TIMES[0], module._SHARE[0]
    assert np.allclose(blue.inflate_variance(own, unbiased), [0, share**2 * 100, times**2 + share**2 * 100])
    assert (of(slope=0.0).inflate_variance(own, unbiased) > 2 * blue.inflate_variance(own, unbiased))[1:].all()
    found = of(excess=0.05).inflate_variance(own, unbiased)
    assert np.allclose(found, blue.inflate_variance(own, unbiased) + 0.05 * unbiased)
    # Nothing is known less than the unbiased answers know it.
    assert np.array_equal(of(slope=-2.0).inflate_variance(unbiased, own), own)


@given(
    estimate=st.floats(0, 1e9),
    variance=st.floats(1e-9, 1e18),
    level=st.floats(0.5, 0.999),
)
@example(0.0, 1e12, 0.95)
@example(1e9, 1e-9, 0.95)
def test_intervals_reach_as_far_as_student_and_gamma_say(estimate, variance, level):
    down, up = (float(x[0]) for x in of().interval(np.array([estimate]), np.array([variance]), level))
    probability = (1 + level) / 2
    half = scipy.stats.t.ppf(probability, module.DRAWS) * np.sqrt(variance)
    assert down == pytest.approx(half + 0.5)
    assert down <= up <= 2 * half + 0.5 + 1e-9 * half
    wider = of().interval(np.array([estimate]), np.array([variance]), level + 5e-4)
    assert down <= wider[0][0]
    assert up <= wider[1][0] * (1 + 1e-9)
    if estimate > 40 * np.sqrt(variance):
        assert up == down
    elif estimate > 0.1 * np.sqrt(variance) and variance > 1e-3:
        gamma = scipy.stats.gamma(estimate**2 / variance, scale=variance / estimate)
        assert up == pytest.approx(np.clip(gamma.ppf(probability) - estimate, half, 2 * half) + 0.5, rel=1e-6)


# --- releases


MAP = dh.Domain((0, 0, 32, 32), (32, 32))
NEAR = dh.Neighbourhood(MAP, 1)


def clumpy(n, rng):
    """Clusters on a mostly empty map, as people live."""
    centres = rng.integers(0, n, (6, 2))
    points = np.concatenate(
        [c + rng.normal(0, n / 40, (int(300 / (i + 1)), 2)) for i, c in enumerate(centres)]
    )
    return np.histogram2d(*points.clip(0, n - 0.01).T, bins=n, range=[(0, n), (0, n)])[0].astype(int)


STRATEGIES = {
    "flow": (lambda near: Flow.tuned(near), {"epsilon": 1.0}),
    "flow of blocks": (lambda near: Flow(near.domain, 2), {"epsilon": 1.0}),
    "tents": (Tents.tuned, {"epsilon": 1.0}),
    "spectral": (Spectral, {"rho": 0.05}),
    "identity": (lambda near: Identity(near.domain), {"epsilon": 1.0}),
    "hierarchical": (lambda near: Hierarchical(near.domain, 4), {"epsilon": 1.0}),
    "cumulative": (lambda near: Cumulative(near.domain), {"rho": 0.05}),
}


def published(counts, near, name, seed=1, **budget):
    make, usual = STRATEGIES[name]
    return dh.publish(
        counts,
        near,
        make(near),
        rng=np.random.default_rng(seed),
        weak_protection_accepted=True,
        **(budget or usual),
    )


def measured(name, releases):
    """Coverage of 400 ranges, half of them with even logarithms of their sides; width relative to that of the unbiased
    intervals, and error relative to that of the unbiased answers and of the nearest cells.
    """
    counts = clumpy(32, np.random.default_rng(4)) * 3
    rng = np.random.default_rng(8)
    corners = []
    for _ in range(2):
        side = np.concatenate([np.exp(rng.uniform(0, np.log(32), 200)), rng.uniform(1, 33, 200)]).astype(int)
        low = rng.integers(0, 33 - side)
        corners.append((low, low + side))
    (left, right), (bottom, top) = corners
    work = dh.workloads.boxes(np.column_stack([left, bottom, right, top]))
    truth = box_sums(counts.astype(float), corners)
    held, width, error, plain, nearest = [], [], [], [], []
    for seed in range(releases):
        release = published(counts, NEAR, name, seed)
        found, unbiased = dh.answer(release, work, nonnegative=True), dh.answer(release, work)
        held.append((found["low"] - 1e-9 <= truth) & (truth <= found["high"] + 1e-9))
        width.append((found["high"] - found["low"]).sum() / (unbiased["high"] - unbiased["low"]).sum())
        error.append(((found["estimate"] - truth) ** 2).mean())
        plain.append(((unbiased["estimate"] - truth) ** 2).mean())
        nearest.append(((box_sums(release.projection.cells, corners) - truth) ** 2).mean())
    return np.mean(held), np.mean(width), np.sqrt(np.sum(error) / [np.sum(plain), np.sum(nearest)])


@pytest.mark.parametrize(
    "name",
    [n if n in ("flow", "hierarchical") else pytest.param(n, marks=pytest.mark.slow) for n in STRATEGIES],
)
def test_intervals_hold_as_often_as_they_say_over_a_map(name, record_property):
    """Four releases: the coverage of one varies by 3%, of four by 1.5. On average over maps 94 to 98.5% are promised.

    92% and 99.5% leave room for this map. Estimates are nearer than unbiased ones and as near as the nearest cells.
    """
    held, width, (against_unbiased, against_nearest) = measured(name, 4)
    assert 0.92 < held < 0.995
    assert width < 0.9
    assert against_unbiased < 0.9
    assert against_nearest < 1.01
    record_property("coverage", float(held))


def roads(n, rng):
    """Thin lines of many points between cells of none."""
    counts = rng.poisson(0.02, (n, n))
    for _ in range(5):
        counts[rng.integers(n)] += rng.poisson(5, n)
        counts[:, rng.integers(n)] += rng.poisson(20, n)
    return counts


@pytest.mark.parametrize(
    ("constant", "value"), [("_UNSETTLED", 0.0), ("_ASTRAY", -1.0), ("MOST_CELLS", 1), ("nature", None)]
)
def test_what_is_not_sure_of_itself_stands_back(constant, value, monkeypatch):
    """By nature: a net of thin roads, where what is around a cell says the wrong thing of it."""
    counts = clumpy(32, np.random.default_rng(4))
    if value is None:
        counts = roads(32, np.random.default_rng(1))
    else:
        assert published(counts, NEAR, "hierarchical").posterior is not None
        monkeypatch.setattr(module, constant, value)
    release = published(counts, NEAR, "hierarchical")
    assert release.posterior is None
    assert release.estimator(True).startswith("non-negative (nearest")
    work = dh.workloads.all_ranges(MAP).sample(200, seed=1)
    found, unbiased = dh.answer(release, work, nonnegative=True), dh.answer(release, work)
    estimate = box_sums(release.projection.cells, work.spans(MAP))
    low, high = (unbiased[name].clip(0, release.total) for name in ("low", "high"))
    expected = (estimate, unbiased["std_error"], np.minimum(low, estimate), np.maximum(high, estimate))
    assert np.allclose(found[["estimate", "std_error", "low", "high"]].T, expected, atol=1e-9)
    cells, errors = release.estimates(nonnegative=True)
    assert np.array_equal(cells, release.projection.cells)
    assert np.array_equal(errors, release.estimates()[1])


def sound(release, counts, spans):
    """What holds of every release, whatever its data and noise."""
    cells = release.cells(nonnegative=True)
    assert np.isfinite(cells).all()
    assert cells.min() >= 0
    work = dh.workloads.boxes(
        np.column_stack([low for low, _ in spans] + [high for _, high in spans]).astype(float)
    )
    found = dh.answer(release, work, nonnegative=True)
    assert np.isfinite(found[["estimate", "std_error", "low", "high"]].to_numpy()).all()
    assert (found["low"] >= 0).all()
    assert (found["low"] <= found["estimate"]).all()
    assert (found["estimate"] <= found["high"]).all()
    if release.total is not None:
        assert cells.sum() == pytest.approx(release.total, rel=1e-9)
        assert found["high"].max() <= release.total * (1 + 1e-9)
        everything = dh.workloads.boxes([[*[0.0] * counts.ndim, *map(float, counts.shape)]])
        whole = dh.answer(release, everything, nonnegative=True)
        assert whole["estimate"][0] == pytest.approx(release.total)
        assert whole["high"][0] - whole["low"][0] <= 1e-6 * max(release.total, 1) + 2 * 0.5
    errors = release.estimates(nonnegative=True)[1]
    assert np.isfinite(errors).all()
    assert (errors >= 0).all()
    return found


@st.composite
def data(draw):
    shape = draw(st.sampled_from([(1, 1), (2, 1), (1, 5), (9, 1), (2, 2), (3, 7), (8, 8), (2,), (5,), (24,)]))
    size = int(np.prod(shape))
    kind = draw(st.sampled_from(["none", "one", "few", "all in one", "huge", "dense", "even"]))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    counts = {
        "none": lambda: np.zeros(size, int),
        "one": lambda: np.eye(1, size, rng.integers(size), dtype=int)[0],
        "few": lambda: rng.poisson(0.3, size),
        "all in one": lambda: 5000 * np.eye(1, size, rng.integers(size), dtype=int)[0],
        "huge": lambda: rng.integers(0, 2, size) * 10**9,
        "dense": lambda: rng.poisson(500, size),
        "even": lambda: np.full(size, 7),
    }[kind]()
    return counts.reshape(shape)


@property_settings(max_examples=25)
@given(
    counts=data(),
    strategy=st.sampled_from(["identity", "flow", "hierarchical:2"]),
    epsilon=st.sampled_from([1e-4, 0.05, 1.0, 30.0, 1000.0]),
    source=st.booleans(),
    seed=st.integers(0, 100),
)
def test_whatever_the_data_estimates_are_counts_and_intervals_hold_them(
    counts, strategy, epsilon, source, seed
):
    shape = counts.shape
    near = dh.Neighbourhood(dh.Domain((*[0] * len(shape), *shape), shape), 1, "boundary" if source else None)
    rng = np.random.default_rng(seed)
    strategy = "identity" if counts.size == 1 else strategy  # a flow needs somewhere to go
    release = dh.publish(counts, near, strategy, epsilon, rng=rng, weak_protection_accepted=True)
    sides = [np.sort(rng.integers(0, n + 1, (8, 2)), axis=1) for n in shape]
    spans = [(np.minimum(low, n - 1), np.maximum(high, np.minimum(low, n - 1) + 1)) for (low, high), n in
             ((side.T, n) for side, n in zip(sides, shape, strict=True))]  # fmt: skip
    found = sound(release, counts, spans)
    if epsilon == 1000.0:  # hardly any noise: the truth itself
        truth = box_sums(counts.astype(float), spans)
        assert np.allclose(found["estimate"], truth, atol=1.0, rtol=1e-6)


def test_there_is_none_without_points_noise_or_room(monkeypatch):
    metric = white((4, 4), 1.0)
    field, noise = np.ones((4, 4)), lambda rng: rng.normal(size=(4, 4))
    assert posterior(field, metric, None, noise) is None  # no cell stands out
    field[1, 2] = 50
    assert posterior(field, metric, 0, noise) is None
    assert posterior(field, replace(metric, variance=np.zeros((4, 4))), None, noise) is None
    assert posterior(field, metric, None, noise) is not None
    assert even_shares((2, 3)).sum() == pytest.approx(6)
    assert isinstance(posterior(field, metric, 65.0, noise), Posterior)


@pytest.mark.parametrize(
    ("shape", "delta", "sources", "budget", "strategy"),
    [
        ((9, 5), 2, "boundary", {"rho": 1000.0}, "identity"),  # the square of a small variance
        ((17, 3), 1, "boundary", {"epsilon": 1000.0}, "auto"),  # one over a small variance, squared
        ((7, 1), 1, None, {"epsilon": 1000.0}, "cumulative"),  # empty cells without noise
        ((1, 1), 1, None, {"epsilon": 1.0}, "identity"),
        ((7, 8), 1, "boundary", {"epsilon": 0.1}, "identity"),
        ((2, 1), 1, "boundary", {"epsilon": 1e6}, "optimal"),  # one over a variance that is hardly a float
        ((20, 16), 1, "boundary", {"epsilon": 1000.0}, "hierarchical"),  # variances of 100 digits less
        ((9, 9), 1, None, {"epsilon": 1e6}, "hubs"),  # no noise for a public total to take away
        ((12, 11), 1, None, {"rho": 1.0}, "identity"),  # a total that is nothing beside the numbers
    ],
)
@pytest.mark.parametrize("number", [None, -(1 << 62), pytest.param("one", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:non-negative estimates are certified")
def test_extremes_are_answered(shape, delta, sources, budget, strategy, number):
    """Hardly any noise, and numbers that nobody publishes: finite answers, and intervals that hold the estimate."""
    domain = dh.Domain((0, 0, *shape), shape)
    near = dh.Neighbourhood(domain, delta, sources, ())
    counts = np.random.default_rng(0).poisson(1, shape)
    if strategy == "optimal":
        strategy = Optimal(near, gap=1e-2)
    elif strategy == "hierarchical":
        strategy = Hierarchical(domain, 3, (Fraction(2), Fraction(2), Fraction(1), Fraction(1, 2)))
    elif strategy == "hubs":
        strategy = Flow(domain, 1, (), None, None, 3)
    release = dh.publish(
        counts, near, strategy, rng=np.random.default_rng(1), weak_protection_accepted=True, **budget
    )
    if number is not None:
        values = np.full_like(release.values, 0 if number == "one" else number)
        values[-1] = 1 << 62
        release = dh.Release(release.mechanism, values, release.total)
    work = dh.workloads.random_boxes(20, domain, seed=1)
    for found in (dh.answer(release, work), dh.answer(release, work, nonnegative=True)):
        assert np.isfinite(found.select_dtypes("number").to_numpy()).all()
        slack = 1e-6 * found["estimate"].abs()
        assert (found["low"] <= found["estimate"] + slack).all()
        assert (found["high"] >= found["estimate"] - slack).all()
    cells = release.cells(nonnegative=True)
    assert (cells >= 0).all()
    if release.total is not None:
        assert cells.sum() == pytest.approx(release.total, rel=1e-12)
