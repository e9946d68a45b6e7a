"""Publishing sorted points: sensitivity against brute force, exact noise, bad input."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.publishers import histogram
from deltahist.publishers.sorted import sorted_steps

LINE = dh.Domain((0, 100), (20,))


@pytest.fixture
def quiet(monkeypatch):
    """Noise is recorded and left out."""
    scales = []

    def record(law, size, rng):
        scales.append(law)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr("deltahist.publishers.sorted.draw", record)
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
    wanted = [min(round(r / step), length) / near.factor_within(r) for r in ends if near.factor_within(r)]
    mechanism = dh.SortedMechanism(near, 50, dh.Budget(**budget), group=1)
    scale = mechanism.law.parameter
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
        with_it = sorted_steps(np.array([20.0, 50.0, place]), LINE, 5, parked="left")
        without = sorted_steps(np.array([20.0, 50.0]), LINE, 5, parked="left")
        assert np.abs(with_it - without).sum() <= near.radius
    right = sorted_steps(np.array([20.0, 50.0]), LINE, 4, parked="right")
    assert right[2:].tolist() == [20 * LINE.steps[0] - 1] * 2


def test_what_is_released_is_exact(quiet):
    near = dh.Neighbourhood(LINE, 5)
    release = dh.publish_sorted([31, 8, 64.0, 47, 200], near, epsilon=0.5, group=2, contributions=3)
    steps = np.sort(LINE.lattice([31, 8, 64.0, 47, 200])[:, 0])
    assert release.values.tolist() == [steps[0] + steps[1], steps[2] + steps[3], steps[4]]
    assert quiet[0].parameter == Fraction(3 * near.radius) / Fraction(1, 2)
    assert release.laws[0] == quiet[0]
    dh.publish_sorted([31], near, rho=0.125)
    assert quiet[1].parameter == Fraction(near.radius**2) * 4
    assert quiet[1].kind == "gaussian"


def test_the_noise_goes_through_the_exact_sampler(monkeypatch):
    monkeypatch.setattr(histogram, "discrete_laplace", lambda scale, size, rng: np.full(size, 7))
    near = dh.Neighbourhood(LINE, 5)
    release = dh.publish_sorted([0, 10], near, epsilon=1, group=1)
    assert release.values.tolist() == [7, 10 * LINE.steps[0] // 5 + 7]


def test_seeded_noise_is_stamped_and_repeats():
    near = dh.Neighbourhood(LINE, 5)
    first, second = (dh.publish_sorted([1, 2], near, 1.0, rng=np.random.default_rng(1)) for _ in range(2))
    assert not first.publishable
    assert np.array_equal(first.values, second.values)
    assert dh.publish_sorted([1, 2], near, 1.0).publishable


@pytest.mark.parametrize(
    ("points", "options", "message"),
    [
        ([], {"epsilon": 1}, "no points"),
        ([1, np.nan], {"epsilon": 1}, "NaN"),
        ([[1, 2]], {"epsilon": 1}, "2 dimensions"),
        (["a"], {"epsilon": 1}, "numbers"),
        ([1, 2], {}, "one of them"),
        ([1, 2], {"epsilon": 1, "rho": 1}, "one of them"),
        ([1, 2], {"epsilon": -1}, "epsilon is -1"),
        ([1, 2], {"epsilon": 1, "group": 3}, "at most the number of points"),
        ([1, 2], {"epsilon": 1, "group": "some"}, "it must be 'auto'"),
        ([1, 2], {"epsilon": 1, "most": 5}, "most is 5 with fixed membership"),
        ([1, 2], {"epsilon": 1, "contributions": 0}, "contributions is 0"),
        ([1, 2], {"epsilon": 1e-9}, "exceed 2\\^52"),
    ],
)
def test_bad_input(points, options, message):
    with pytest.raises(dh.InputError, match=message):
        dh.publish_sorted(points, dh.Neighbourhood(LINE, 5), **options)


def test_bad_membership():
    with pytest.raises(dh.InputError, match="most is missing"):
        dh.publish_sorted([1], dh.Neighbourhood(LINE, 5, sources="left"), 1.0)
    with pytest.raises(dh.InputError, match="more points"):
        dh.publish_sorted([1, 2, 3], dh.Neighbourhood(LINE, 5, sources="left"), 1.0, most=2)
    with pytest.raises(dh.InputError, match="entry at one end"):
        dh.publish_sorted([1], dh.Neighbourhood(LINE, 5, sources="boundary"), 1.0)
    with pytest.raises(dh.InputError, match="2 dimensions"):
        dh.publish_sorted([1], dh.Neighbourhood(dh.Domain((0, 0, 1, 1), (2, 2)), 0.5), 1.0)


def test_a_refusal_does_not_say_how_many_points_there_are():
    """With a source their number is not public."""
    near = dh.Neighbourhood(LINE, 5, sources="left")
    mechanism = dh.publish_sorted([1, 2], near, 1.0, most=50).mechanism
    for given, bound in ((near, {"epsilon": 1, "most": 50}), (mechanism, {})):
        with pytest.raises(dh.InputError) as said:
            dh.publish_sorted(np.zeros(173), given, **bound)
        assert "50" in str(said.value)
        assert "173" not in str(said.value)


@pytest.mark.parametrize("points", [np.ones((173, 3)), np.array([None, *range(172)]), np.array(["1"] * 173)])
def test_points_that_are_no_numbers_are_refused_without_their_number(points):
    near = dh.Neighbourhood(LINE, 5, sources="left")
    with pytest.raises(dh.InputError, match=r"must be \(n,\) numbers") as said:
        dh.publish_sorted(points, near, 1.0, most=500)
    assert "173" not in str(said.value)


def test_nobody_there_is_a_release_too():
    near = dh.Neighbourhood(LINE, 5, sources="left")
    assert len(dh.publish_sorted([], near, 1.0, most=4, group=1).values) == 4
