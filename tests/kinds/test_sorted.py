"""Sorted points: sensitivity by brute force, exact noise, decoding and intervals, files, bad input."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.kinds.sorted import SortedMechanism, SortedRelease
from deltahist.laws import Laplace
from deltahist.mechanisms.base import factor_promised

LINE = dh.Domain((0, 100), (20,))
UNIT = dh.Domain((0, 1), (100,))


@pytest.fixture
def quiet(monkeypatch):
    """Noise is recorded and left out."""
    scales = []

    def record(law, size, rng):
        scales.append(law)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr("deltahist.publishers.publication.sample_law", record)
    return scales


@pytest.mark.parametrize("group", [1, 2, 3])
@pytest.mark.parametrize("users", [1, 2])
def test_the_sensitivity_is_delta_by_brute_force(group, users):
    """All sets of up to 4 points on 6 places, all neighbours: the largest L1 distance of the sums is K D."""
    places, reach, number = 6, 2, 4
    sets = list(itertools.combinations_with_replacement(range(places), number))

    def sums(points):
        return np.add.reduceat(np.sort(points), np.arange(0, number, group))

    worst = worst_square = 0
    for points in sets:
        for moved in itertools.combinations(range(number), users):
            for to in itertools.product(range(places), repeat=users):
                if any(abs(t - points[i]) > reach for i, t in zip(moved, to, strict=True)):
                    continue
                other = list(points)
                for i, t in zip(moved, to, strict=True):
                    other[i] = t
                change = np.abs(sums(points) - sums(other))
                worst, worst_square = max(worst, change.sum()), max(worst_square, (change**2).sum())
    assert worst == users * reach
    # For single coordinates K points change K entries: K D² would do for ρ, (K D)² is safe.
    assert worst_square <= (users * reach) ** 2
    assert worst_square == (users * reach) ** 2 or group == 1


@pytest.mark.parametrize("limits", [(), [(20, 2)], [(20, 1), (float("inf"), 3)], [(40, 5), (np.inf, 30)]])
@pytest.mark.parametrize("budget", [{"epsilon": 2}, {"rho": 2}])
def test_noise_is_for_the_furthest_move_over_its_factor(limits, budget):
    """The largest distance over its factor, by looking at every distance; what any move costs follows."""
    near = dh.Neighbourhood(LINE, 5, limits=limits)
    step, length = LINE.step[0], LINE.lattice_shape[0] - 1
    ends = [min(float(r), 100.0) for r in np.linspace(5, 100, 20)]
    wanted = [min(round(r / step), length) / factor_promised(near, r) for r in ends]
    mechanism = dh.kinds.SortedMechanism(near, 50, dh.Budget(**budget), group=1)
    scale = mechanism.laws[0].parameter
    hidden = scale * 2 if "epsilon" in budget else Fraction(float(scale * 4) ** 0.5)
    assert float(hidden) == pytest.approx(float(max(near.radius, *wanted)), rel=1e-9)
    for limit in near.profile:
        distance = 100 if limit.any else limit.distance
        cost = mechanism.cost_under(near.moves_within(distance))
        assert cost <= 2 * limit.factor**mechanism.norm


def test_entry_at_an_end_is_a_move_from_the_parking_place():
    """A set with one point more, within δ of the end, differs by at most D after padding."""
    near = dh.Neighbourhood(LINE, 10, sources="left")
    for place in (0, 3, 9.99):
        mechanism = SortedMechanism(near, 5, dh.Budget(1), 1)
        with_it, without = (mechanism.measure(mechanism.check_data(x)) for x in ([20.0, 50.0, place], [20.0, 50.0]))
        assert np.abs(with_it - without).sum() <= near.radius
    mechanism = SortedMechanism(replace(near, sources="right"), 4, dh.Budget(1), 1)
    right = mechanism.measure(mechanism.check_data([20.0, 50.0]))
    assert right[2:].tolist() == [20 * LINE.steps[0] - 1] * 2


def test_what_is_released_is_exact(quiet):
    near = dh.Neighbourhood(LINE, 5)
    release = dh.publishers.publish_sorted([31, 8, 64.0, 47, 200], near, epsilon=0.5, group=2, contributions=3)
    steps = np.sort(LINE.lattice([31, 8, 64.0, 47, 200])[:, 0])
    assert release.values.tolist() == [steps[0] + steps[1], steps[2] + steps[3], steps[4]]
    assert quiet[0].parameter == Fraction(3 * near.radius) / Fraction(1, 2)
    assert release.laws[0] == quiet[0]
    dh.publishers.publish_sorted([31], near, rho=0.125)
    assert quiet[1].parameter == Fraction(near.radius**2) * 4
    assert quiet[1].kind == "gaussian"


def test_a_refusal_does_not_say_how_many_points_there_are():
    """With a source their number is not public; none is a number, too."""
    near = dh.Neighbourhood(LINE, 5, sources="left")
    mechanism = dh.publishers.publish_sorted([], near, 1.0, most=50, group=1).mechanism
    assert mechanism.size == 50
    bound, odd = {"epsilon": 1, "most": 50}, r"must be a 1-D array of finite numbers"
    for points, where, options, words in (
        (np.zeros(173), near, bound, "50"),
        (np.ones((173, 3)), near, bound, odd),
        (np.array([None, *range(172)]), near, bound, odd),
        (np.array(["1"] * 173), near, bound, odd),
    ):
        with pytest.raises(dh.InputError, match=words) as said:
            dh.publishers.publish_sorted(points, where, **options)
        assert "173" not in str(said.value)


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
            min(np.average(means[a : b + 1], weights=weight[a : b + 1]) for b in rows if b >= i) for a in rows if a <= i
        )
        for i in rows
    ]
    ranks, steps = release.decoder.knots
    blocks = [list(g) for _, g in itertools.groupby(rows, key=lambda i: round(plain[i], 3))]
    for block in blocks:
        value = plain[block[0]]
        if -0.5 < value < release.mechanism.lattice_steps - 0.5:
            middle = (release.decoder.ends[block[0]] + release.decoder.ends[block[-1] + 1]) / 2
            assert np.interp(middle, ranks, steps) == pytest.approx(value, abs=1e-3)
    assert np.all(np.diff(ranks) >= 0)
    assert np.all(np.diff(steps) >= 0)


@pytest.mark.parametrize("draws", [1, 5, 40])
def test_the_tail_of_a_sum_of_draws(draws):
    rng = np.random.default_rng(draws)
    total = rng.laplace(size=(100_000, draws)).sum(axis=1)
    for alpha in (0.1, 0.01):
        hits = int((total > Laplace(Fraction(1)).tail(draws, alpha)).sum())
        # False alarms: 1 in 10^4 over all cases.
        assert scipy.stats.binomtest(hits, len(total), alpha).pvalue > 1e-5


@pytest.mark.parametrize(
    ("kind", "budget"), [("spread", {"rho": 0.5}), ("clumped", {"epsilon": 1}), ("tied", {"epsilon": 1})]
)
def test_intervals_cover(kind, budget):
    """At least 95% of ranges and quantiles, at every kind of data: conservative, so no false alarms to speak of."""
    rng = np.random.default_rng(5)
    points = {
        "spread": rng.random(600),
        "clumped": np.clip(rng.normal(rng.choice([0.2, 0.21, 0.7], 600), 0.004), 0, 1),
        "tied": rng.choice([0.1, 0.5, 0.52], 600),
    }[kind]
    near = dh.Neighbourhood(UNIT, 0.02)
    low = rng.random(40) * 0.8
    high = low + 0.15
    true = [((points > a) & (points < b)).sum() for a, b in zip(low, high, strict=True)]
    q = np.array([0.05, 0.3, 0.5, 0.77, 1.0])
    order = np.sort(points)[np.ceil(q * 600).astype(int) - 1]
    hits, quantile_hits, typical = [], [], []
    for _ in range(10):
        release = dh.publishers.publish_sorted(points, near, rng=rng, **budget)
        found = dh.answer(release, dh.workloads.boxes(np.column_stack([low, high])))
        hits.append((found["low"] <= true) & (true <= found["high"]))
        typical.append(np.abs(found["estimate"] - true) < 4 * found["std_error"])
        ranks = release.quantiles(q)
        # Lattice steps are a hundred-millionth of the domain.
        quantile_hits.append((ranks["low"] <= order + 1e-7) & (order - 1e-7 <= ranks["high"]))
    assert np.mean(hits) >= 0.95
    assert np.mean(quantile_hits) >= 0.95
    assert np.mean(typical) > 0.6


@pytest.mark.parametrize(("sources", "empty"), [("left", (0, 15)), ("right", (95, 100))])
def test_absent_points_are_not_counted(sources, empty):
    near = dh.Neighbourhood(dh.Domain((0, 100), (100,)), 1, sources=sources)
    points = np.random.default_rng(6).uniform(20, 90, 300)
    release = dh.publishers.publish_sorted(points, near, 2.0, most=500, group=1, rng=np.random.default_rng(7))
    assert release.total is None
    inside = [empty[1], 100] if sources == "left" else [0, empty[0]]
    found = dh.answer(release, dh.workloads.boxes([inside, [0, 100]]))
    assert abs(found["estimate"][0] - 300) < 5
    assert found["low"][1] <= 300 <= found["high"][1]
    middle = release.quantiles([0.9])
    assert middle["low"][0] <= np.sort(points)[269] <= middle["high"][0]


@pytest.mark.parametrize(
    ("points", "sources", "given"),
    [
        ([], None, {}),
        ([1, np.nan], None, {}),
        ([1, 2], None, {"group": 3}),
        ([1, 2], None, {"most": 5}),  # their number is public
        ([1], "left", {}),  # and here it is not
        ([1, 2, 3], "left", {"most": 2}),
        ([1], "boundary", {}),
    ],
)
def test_bad_input_is_refused(points, sources, given):
    with pytest.raises(dh.InputError):
        dh.publishers.publish_sorted(points, dh.Neighbourhood(LINE, 5, sources=sources), epsilon=1, **given)
