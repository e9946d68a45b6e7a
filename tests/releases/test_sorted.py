"""Sorted releases: decoding, ranks, quantiles and intervals against plain definitions; files; public choices."""

import itertools
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.stats
from altered import write_altered
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.decode.isotonic import tail
from deltahist.mechanisms.sorted import SortedMechanism, group_size
from deltahist.privacy import Law
from deltahist.releases import SortedRelease

LINE = dh.Domain((0, 1), (100,))
STEPS = 100 * LINE.steps[0]


def exact_release(points, near, group=1, **options):
    """What would be released without noise."""
    steps = np.sort(near.domain.lattice(np.asarray(points))[:, 0])
    sums = np.add.reduceat(steps, np.arange(0, len(steps), group))
    return SortedRelease(SortedMechanism(near, len(steps), dh.Budget(1), group), sums, **options)


def test_without_noise_the_coordinates_come_back():
    points = np.sort(np.random.default_rng(1).random(500))
    release = exact_release(points, dh.Neighbourhood(LINE, 0.01))
    assert np.abs(release.coordinates() - points).max() < 1e-6


@pytest.mark.parametrize("group", [1, 7, 50])
def test_without_noise_ranks_are_right_within_a_group(group):
    points = np.random.default_rng(2).beta(2, 5, 400)
    release = exact_release(points, dh.Neighbourhood(LINE, 0.01), group)
    edges = np.linspace(0, 1, 31)
    found = dh.answer(release, dh.workloads.boxes(np.column_stack([np.zeros(30), edges[1:]])))
    true = [(points < e).sum() for e in edges[1:]]
    assert np.abs(found["estimate"] - true).max() <= group
    assert found["estimate"].iloc[-1] == 400


def test_the_histogram_adds_up_and_is_not_negative():
    near = dh.Neighbourhood(LINE, 0.05)
    release = dh.publish_sorted(np.random.default_rng(3).random(300), near, 1.0, rng=np.random.default_rng(4))
    cells = release.histogram()
    assert cells.shape == LINE.shape
    assert cells.min() >= 0
    assert cells.sum() == pytest.approx(300)
    boxes = np.column_stack([np.arange(100), np.arange(1, 101)]) / 100
    assert np.allclose(dh.answer(release, dh.workloads.boxes(boxes))["estimate"], cells)


@given(st.lists(st.integers(-50, 150), min_size=1, max_size=12), st.integers(1, 4))
def test_decoding_is_isotonic_regression(values, group):
    """Against the definition: max over a of min over b of weighted means, by all pairs."""
    near = dh.Neighbourhood(dh.Domain((0, 1), (1,)), 0.5)
    unit = near.domain.steps[0] // 100
    number = len(values) * group - (group - 1) // 2
    release = SortedRelease(
        SortedMechanism(near, number, dh.Budget(1), min(group, number)), np.array(values) * unit * group
    )
    sizes = np.diff(release.decoder.ends).astype(float)
    means, weight = release.values / sizes, sizes**2
    rows = range(len(values))
    plain = [
        max(
            min(np.average(means[a : b + 1], weights=weight[a : b + 1]) for b in rows if b >= i)
            for a in rows
            if a <= i
        )
        for i in rows
    ]
    ranks, steps = release.decoder.knots
    centres = (release.decoder.ends[1:] + release.decoder.ends[:-1]) / 2
    blocks = [list(g) for _, g in itertools.groupby(rows, key=lambda i: round(plain[i], 3))]
    for block in blocks:
        value = plain[block[0]]
        if -0.5 < value < release.mechanism.steps - 0.5:
            middle = (release.decoder.ends[block[0]] + release.decoder.ends[block[-1] + 1]) / 2
            assert np.interp(middle, ranks, steps) == pytest.approx(value, abs=1e-3)
    assert np.all(np.diff(ranks) >= 0)
    assert np.all(np.diff(steps) >= 0)
    assert len(centres) == len(values)


@pytest.mark.parametrize("draws", [1, 2, 5, 40])
def test_the_tail_of_a_sum_of_draws(draws):
    rng = np.random.default_rng(draws)
    total = rng.laplace(size=(400_000, draws)).sum(axis=1)
    for alpha in (0.1, 0.01):
        hits = int((total > tail(Law("laplace", Fraction(1)), draws, alpha)).sum())
        # False alarms: 1 in 10^4 over all cases.
        assert scipy.stats.binomtest(hits, len(total), alpha).pvalue > 1e-5


def test_long_sums_join_the_exact_ones():
    law = Law("laplace", Fraction(7))
    assert tail(law, 4097, 1e-4) == pytest.approx(tail(law, 4096, 1e-4), rel=2e-4)
    assert tail(Law("gaussian", Fraction(9)), 4, 0.025) == pytest.approx(6 * 1.95996, rel=1e-5)


@pytest.mark.parametrize("kind", ["spread", "clumped", "tied"])
@pytest.mark.parametrize("budget", [{"epsilon": 1.0}, {"rho": 0.5}])
def test_intervals_cover(kind, budget):
    """At least 95% of ranges and quantiles, at every kind of data: conservative, so no false alarms to speak of."""
    rng = np.random.default_rng(5)
    points = {
        "spread": rng.random(600),
        "clumped": np.clip(rng.normal(rng.choice([0.2, 0.21, 0.7], 600), 0.004), 0, 1),
        "tied": rng.choice([0.1, 0.5, 0.52], 600),
    }[kind]
    near = dh.Neighbourhood(LINE, 0.02)
    low = rng.random(40) * 0.8
    high = low + 0.15
    true = [((points > a) & (points < b)).sum() for a, b in zip(low, high, strict=True)]
    q = np.array([0.05, 0.3, 0.5, 0.77, 1.0])
    order = np.sort(points)[np.ceil(q * 600).astype(int) - 1]
    hits, quantile_hits, typical = [], [], []
    for _ in range(40):
        release = dh.publish_sorted(points, near, rng=rng, **budget)
        found = dh.answer(release, dh.workloads.boxes(np.column_stack([low, high])))
        hits.append((found["low"] <= true) & (true <= found["high"]))
        typical.append(np.abs(found["estimate"] - true) < 4 * found["std_error"])
        ranks = release.quantiles(q)
        # Lattice steps are a hundred-millionth of the domain.
        quantile_hits.append((ranks["low"] <= order + 1e-7) & (order - 1e-7 <= ranks["high"]))
    assert np.mean(hits) >= 0.95
    assert np.mean(quantile_hits) >= 0.95
    assert np.mean(typical) > 0.6


@pytest.mark.parametrize("number", [1, 2, 10])
@pytest.mark.parametrize("delta", [1e-3, 1.0])
@pytest.mark.parametrize("budget", [{"epsilon": 0.01}, {"epsilon": 50.0}, {"rho": 1e-4}])
def test_few_points_and_extreme_noise_still_give_figures(number, delta, budget):
    """Everything at an end, outside, or tied: all figures are finite, ordered and add up."""
    near = dh.Neighbourhood(LINE, delta)
    rng = np.random.default_rng(number)
    for points in (
        rng.random(number),
        np.full(number, 1 / 3),
        np.zeros(number),
        10 * rng.normal(size=number),
    ):
        release = dh.publish_sorted(points, near, rng=rng, **budget)
        cells = release.histogram()
        assert cells.min() >= 0
        assert cells.sum() == pytest.approx(number)
        found = dh.answer(release, dh.workloads.boxes([[0, 0.5], [0.25, 1]]))
        assert np.isfinite(found.to_numpy()).all()
        ranks = release.quantiles([0, 0.5, 1])
        assert (ranks["low"] <= ranks["estimate"]).all()
        assert (ranks["estimate"] <= ranks["high"]).all()


def test_absent_points_are_not_counted():
    near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), 1, sources="left")
    points = np.random.default_rng(6).uniform(20, 90, 300)
    release = dh.publish_sorted(points, near, 2.0, most=500, group=1, rng=np.random.default_rng(7))
    assert release.total is None
    found = dh.answer(release, dh.workloads.boxes([[15, 100], [0, 100]]))
    assert abs(found["estimate"][0] - 300) < 5
    assert found["low"][1] <= 300 <= found["high"][1]
    middle = release.quantiles([0.9])
    assert middle["low"][0] <= np.sort(points)[269] <= middle["high"][0]


def test_the_right_end_mirrors_the_left():
    domain = dh.Domain((0, 100), (100,))
    points = np.random.default_rng(8).uniform(10, 80, 200)
    near = dh.Neighbourhood(domain, 1, sources="right")
    release = dh.publish_sorted(points, near, 2.0, most=260, group=1, rng=np.random.default_rng(9))
    assert abs(dh.answer(release, dh.workloads.boxes([[0, 85]]))["estimate"][0] - 200) < 5


def test_the_group_grows_with_the_noise_and_fits_its_public_figures():
    sizes = [group_size(dh.Neighbourhood(LINE, d), 10_000, epsilon=1.0) for d in (0.001, 0.01, 0.1, 1)]
    assert sizes == sorted(sizes)
    near = dh.Neighbourhood(LINE, 0.01)
    assert group_size(near, 1, epsilon=1.0) == 1
    assert group_size(near, 10_000, epsilon=0.1) > group_size(near, 10_000, epsilon=1.0)
    assert group_size(near, 10_000, rho=0.5) > 1


def test_the_group_is_near_the_best_for_spread_and_clumped_points():
    rng = np.random.default_rng(10)
    near = dh.Neighbourhood(LINE, 0.02)
    low = rng.random(100) * 0.9
    for points in (rng.random(3000), np.clip(rng.normal(rng.choice(rng.random(8), 3000), 0.02), 0, 1)):
        true = np.array([((points > a) & (points < a + 0.1)).sum() for a in low])
        errors = {}
        chosen = group_size(near, 3000, epsilon=1.0)
        for group in (1, chosen, 10 * chosen):
            squares = []
            for _ in range(12):
                release = dh.publish_sorted(points, near, 1.0, group=group, rng=rng)
                estimate, *_ = release.counts(low * STEPS - 0.5, (low + 0.1) * STEPS - 0.5)
                squares.append(np.mean((estimate - true) ** 2))
            errors[group] = np.mean(squares)
        assert errors[chosen] < errors[1]
        assert errors[chosen] < 2 * errors[10 * chosen]


def test_a_file_says_the_same(tmp_path):
    near = dh.Neighbourhood(LINE, 0.01, sources="left")
    release = dh.publish_sorted([0.1, 0.5, 0.6], near, rho=0.1, most=5, contributions=2)
    release.save(tmp_path / "points.parquet")
    again = SortedRelease.load(tmp_path / "points.parquet")
    assert again.describe() == release.describe()
    assert np.array_equal(again.values, release.values)
    assert "sorted coordinates" in again.statement()
    assert "lattice steps" in again.statement().split("Noise")[1]
    assert again.facts()["protection"][0]["exact"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": 9}, "3 values: 9 points"),
        ({"epsilon": "2"}, "states noise"),
        ({"format": "deltahist-release"}, "it must be 'deltahist-sorted'"),
        ({"version": 4}, "version 4"),
        ({"dropped": ["bad rows"]}, "some were dropped"),
        ({"unit": "user", "contributions": 0}, "contributions is 0"),
        ({"group": 0}, "group is 0"),
        ({"number": 10**17, "group": 10**17}, "at most"),
        ({"neighbourhood": {"delta": 0.1, "sources": "boundary"}}, "entry at one end"),
    ],
)
def test_an_altered_file_is_refused(tmp_path, change, message):
    release = dh.publish_sorted([0.1, 0.5, 0.6], dh.Neighbourhood(LINE, 0.1), 1.0)
    path = tmp_path / "points.parquet"
    release.save(path)
    write_altered(path, pq.read_table(path), release.describe() | change)
    with pytest.raises(dh.InputError, match=message):
        SortedRelease.load(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(dh.InputError, match="truncated"):
        SortedRelease.load(path)


def test_costs_grow_in_proportion_to_the_distance():
    release = exact_release([0.2, 0.4], dh.Neighbourhood(LINE, 0.1))
    assert [float(c) for c in release.mechanism.cost_within(0.25)] == [2.5, 3.0]
    release = SortedRelease(
        SortedMechanism(release.neighbourhood, 2, dh.Budget(rho=Fraction(1, 8)), 1), release.values
    )
    assert [float(c) for c in release.mechanism.cost_within(0.25)] == [0.78125, 1.125]


def test_bad_questions():
    release = exact_release([0.2, 0.4], dh.Neighbourhood(LINE, 0.1))
    with pytest.raises(dh.InputError, match=r"q is 1\.5"):
        release.quantiles(1.5)
    with pytest.raises(dh.InputError, match="level is 1"):
        release.quantiles(0.5, level=1)
    with pytest.raises(dh.InputError, match="level is 2"):
        dh.answer(release, dh.workloads.boxes([[0, 1]]), level=2)
    with pytest.raises(dh.InputError, match="there must be 2 of int64"):
        SortedRelease(release.mechanism, release.values[:1])
    with pytest.raises(dh.InputError, match="one of them"):
        group_size(release.neighbourhood, 3)
    square = dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (2, 2)), 0.5)
    with pytest.raises(dh.InputError, match="2 dimensions"):
        group_size(square, 3, epsilon=1.0)
