"""Folders of releases: sums with their joint error, periods, missing steps, changes; and what is no series."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

import deltahist as dh
from deltahist.mechanisms.base import Step
from deltahist.preprocessing import Clock
from deltahist.releases.series import Difference, Summed
from deltahist.statement import list_facts

DAYS = Clock.of("2010-05-01", "1d")
DOMAIN = dh.Domain((0, 0, 8, 6), (8, 6))
NEAR = dh.Neighbourhood(DOMAIN, 1, "boundary")
#: Whole cells, cut cells, a cell, everything.
BOXES = [[0, 0, 4, 3], [0.5, 1.2, 6.3, 4.9], [2, 2, 3, 3], [0, 0, 8, 6]]
ASKED = dh.workloads.boxes(BOXES)


def made(number=5, near=NEAR, strategy="flow", amounts=None, seed=1, **more):
    """Releases of some steps, each of counts of its own."""
    rng = np.random.default_rng(seed)
    amounts = amounts or [1.0] * number
    return {
        step: dh.publish(rng.poisson(9, near.domain.shape), near, strategy, epsilon, rng=rng, **more)
        for step, epsilon in zip(range(number), amounts, strict=True)
    }


def series(releases, clock=DAYS, **more):
    return dh.Series(clock, min(releases), max(releases), releases, **more)


@pytest.mark.parametrize("amounts", [None, [1.0, 0.5, 2.0, 1.0, 0.25]], ids=["equal", "unequal"])
@pytest.mark.parametrize("strategy", ["identity", "flow", "hierarchical:2"])
def test_the_sum_is_the_sum_of_the_tables(strategy, amounts):
    releases = made(strategy=strategy, amounts=amounts)
    found = dh.answer(series(releases), ASKED)
    each = [dh.answer(release, ASKED) for release in releases.values()]
    assert np.allclose(found["estimate"], sum(e["estimate"] for e in each), rtol=1e-12, atol=1e-9)
    if strategy == "identity":  # whole numbers stay so
        whole = [0, 2, 3]
        assert found["estimate"][whole].tolist() == sum(e["estimate"] for e in each)[whole].tolist()
    assert np.allclose(found["noise_error"] ** 2, sum(e["noise_error"] ** 2 for e in each), rtol=1e-9)
    assert (found["placement_error"] >= sum(e["placement_error"] for e in each) - 1e-9).all()
    assert np.allclose(found["std_error"] ** 2, found["noise_error"] ** 2 + found["placement_error"] ** 2, rtol=1e-9)
    assert found["steps"].tolist() == [5] * 4


def sum_of_days(days, counts):
    return days, counts.sum(axis=0)


def change_of_means(days, counts):
    before, after = days.between("2010-05-01", "2010-05-02"), days.between("2010-05-03", "2010-05-06")
    return Difference(before.per_step(), after.per_step()), counts[2:].mean(axis=0) - counts[:2].mean(axis=0)


@pytest.mark.parametrize("asked", [sum_of_days, change_of_means])
def test_intervals_hold_as_often_as_they_say(asked):
    """1,920 answers from six steps with amounts of their own, whose noise is independent.

    Fixed seed. Were they covered 90 times in 100, either bound would be missed once in 10,000.
    """
    cells = dh.workloads.boxes([[x, y, x + 1, y + 1] for x in range(8) for y in range(6)])
    rng = np.random.default_rng(3)
    amounts = [1.0, 0.5, 0.5, 2.0, 1.0, 0.3]
    covered = total = 0
    for _ in range(40):
        counts = rng.poisson(9, (6, *DOMAIN.shape))
        releases = {
            step: dh.publish(c, NEAR, "identity", epsilon, rng=rng)
            for step, (c, epsilon) in enumerate(zip(counts, amounts, strict=True))
        }
        period, truth = asked(series(releases), counts)
        found, truth = dh.answer(period, cells, level=0.9), truth.ravel()
        covered += int(((found["low"] <= truth) & (truth <= found["high"])).sum())
        total += len(truth)
    law = scipy.stats.binom(total, 0.9)
    assert law.ppf(1e-4) <= covered <= law.ppf(1 - 1e-4)


def test_places_that_are_visited_every_day_are_not_taken_for_chance():
    """Forty places with the same people every day: errors of cut cells come back, and do not even out."""
    rng = np.random.default_rng(5)
    domain = dh.Domain((0, 0, 16, 16), (16, 16))
    near = dh.Neighbourhood(domain, 1, "boundary")
    places = np.repeat(rng.random((40, 2)) * 16, 25, axis=0)
    counts = dh.count(places, domain)
    days = {step: dh.publish(counts, near, "identity", 4.0, rng=rng) for step in range(12)}
    corner = rng.random((400, 2)) * 11
    boxes = np.hstack([corner, corner + 0.6 + 4 * rng.random((400, 1))])
    inside = ((places[:, None] > boxes[:, :2]) & (places[:, None] < boxes[:, 2:])).all(axis=2).sum(axis=0)
    found = dh.answer(series(days), boxes)
    off = np.abs(found["estimate"] - 12 * inside)
    by_chance = np.sqrt(sum(dh.answer(r, boxes)["std_error"] ** 2 for r in days.values()))
    assert (off <= 1.96 * by_chance).mean() < 0.8
    assert ((found["low"] <= 12 * inside) & (12 * inside <= found["high"])).mean() > 0.93


def test_the_sum_is_made_not_negative_and_not_its_parts():
    near = dh.Neighbourhood(DOMAIN, 1)
    rng = np.random.default_rng(2)
    counts = np.zeros(DOMAIN.shape, dtype=int)
    counts[:2] = 30
    releases = {step: dh.publish(counts, near, "flow", 0.2, rng=rng) for step in range(10)}
    summed = Summed(tuple(releases.values()))
    shown = summed.cells(nonnegative=True)
    assert shown.min() >= 0
    assert shown.sum() == pytest.approx(10 * counts.sum())
    parts = sum(r.cells(nonnegative=True) for r in releases.values())
    assert np.abs(shown - 10 * counts).sum() < 0.85 * np.abs(parts - 10 * counts).sum()
    found = dh.answer(series(releases), ASKED, nonnegative=True)
    assert (found["low"] <= found["estimate"]).all()
    assert (found["estimate"] <= found["high"]).all()
    assert found["estimate"][0] == pytest.approx(shown[:4, :3].sum())
    assert set(found["estimator"]) == {"non-negative"}


@pytest.mark.parametrize(
    ("near", "strategy"), [(NEAR, "flow"), (dh.Neighbourhood(DOMAIN, 1), "hierarchical:2")], ids=["arrivals", "total"]
)
def test_the_noise_of_a_sum_is_that_of_all_its_releases(near, strategy):
    """The metric's variance adds up over amounts that differ and repeat; so do draws of the noise.

    1,000 draws, 48 cells: each variance's law is χ², both bounds together are missed once in 1,000 for all cells.
    """
    releases = made(4, near=near, strategy=strategy, amounts=[1.0, 0.25, 1.0, 2.0])
    summed = Summed(tuple(releases.values()))
    parts = [release.decoder.noise_metric().variance for release in releases.values()]
    assert np.allclose(summed._noise_metric.variance, np.sum(parts, axis=0))
    rng = np.random.default_rng(11)
    decoders = [each.decoder for each in releases.values()]
    drawn = np.array([sum(each.simulate_noise(rng) for each in decoders) for _ in range(1000)]).reshape(1000, -1)
    cells = dh.workloads.boxes([[x, y, x + 1, y + 1] for x in range(8) for y in range(6)])
    ratio = (drawn**2).sum(axis=0) / summed.decoder.moments(cells).variance
    law = scipy.stats.chi2(1000)
    assert (law.ppf(5e-4 / 48) <= ratio).all()
    assert (ratio <= law.isf(5e-4 / 48)).all()


def test_a_change_is_the_later_period_less_the_earlier_one():
    whole = series(made(7))
    before, after = whole.between("2010-05-01", "2010-05-03"), whole.between("2010-05-04", "2010-05-07")
    found = dh.answer(Difference(before, after), ASKED)
    parts = [dh.answer(period, ASKED) for period in (before, after)]
    assert found["before"].tolist() == parts[0]["estimate"].tolist()
    assert found["after"].tolist() == parts[1]["estimate"].tolist()
    assert np.allclose(found["estimate"], parts[1]["estimate"] - parts[0]["estimate"])
    assert np.allclose(found["noise_error"] ** 2, sum(p["noise_error"] ** 2 for p in parts))
    assert np.allclose(found["placement_error"], sum(p["placement_error"] for p in parts))
    means = dh.answer(Difference(before.per_step(), after.per_step()), ASKED)
    assert np.allclose(means["estimate"], parts[1]["estimate"] / 4 - parts[0]["estimate"] / 3)
    expected = parts[1]["noise_error"] ** 2 / 16 + parts[0]["noise_error"] ** 2 / 9
    assert np.allclose(means["noise_error"] ** 2, expected)


OTHER = dh.Neighbourhood(dh.Domain((0, 0, 9, 6), (9, 6)), 1, "boundary")


@pytest.mark.parametrize(
    "changes",
    [
        {"near": OTHER},
        {"near": dh.Neighbourhood(DOMAIN, 2, "boundary")},
        {"strategy": "identity"},
        {"contributions": 3},
    ],
)
def test_mixed_releases_are_refused(changes):
    with pytest.raises(dh.InputError):
        series({0: made(1)[0], 1: made(1, **changes)[0]})


def of_stream(step, window=7, clock=DAYS):
    mechanism = dh.Mechanism(NEAR, dh.strategies.Identity(DOMAIN), dh.Budget(Fraction(1, 7)))
    made = mechanism.with_changes(step=Step(clock, step, window, dh.Budget(1)))
    return dh.publishers.publish_mechanism(
        made, np.ones(DOMAIN.shape, dtype=int), account=dh.accounts.Account(dh.accounts.Window(window, epsilon=1), step)
    )


def test_a_folder_is_read_by_what_its_files_say(tmp_path):
    for step in (0, 2, 3):
        of_stream(step).save(tmp_path / f"{DAYS.label(step)}.parquet")
    found = dh.Series.load(tmp_path)
    assert found.clock == DAYS
    assert sorted(found.releases) == [0, 2, 3]
    assert found.missing_steps == ["2010-05-02"]
    (tmp_path / "2010-05-03.parquet").rename(tmp_path / "2010-05-02.parquet")
    with pytest.raises(dh.InputError, match=r"2010-05-02.* is for step 2010-05-03: it must be named after that"):
        dh.Series.load(tmp_path)


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["2010-05-01", "2010-05-03", "2010-05-04"], ["2010-05-01", "2010-05-02", "2010-05-03", "2010-05-04"]),
        (["2010-05-01", "2010-05-08"], ["2010-05-01", "2010-05-08"]),
        (["3", "5"], ["3", "4", "5"]),
    ],
)
def test_files_that_say_nothing_of_steps_are_read_by_their_names(tmp_path, names, labels):
    for name, release in zip(names, made(len(names)).values(), strict=True):
        release.save(tmp_path / f"{name}.parquet")
    assert dh.Series.load(tmp_path).step_labels == labels


@pytest.mark.parametrize(
    ("every", "first", "last", "named"),
    [
        ("1w", "2010-05-03", "2010-05-17", (0, 2)),  # names of steps
        ("1w", "2010-05-03", "2010-05-16", (0, 1)),  # whole weeks by their days
        ("1w", "2010-05-04", "2010-05-16", None),
        ("6h", "2010-05-03", "2010-05-03", (0, 3)),
        ("7h", "2010-05-03", "2010-05-03", None),
        ("month", "2010-05-01", "2010-06-30", (0, 1)),
        ("month", "2010-05-01", "2010-06-29", None),
    ],
)
def test_a_period_that_cuts_a_step_is_refused(every, first, last, named):
    city = series(made(4, strategy="identity"), Clock.of("2010-05" if every == "month" else "2010-05-03", every))
    if named is None:
        with pytest.raises(dh.InputError, match="is inside a step"):
            city.between(first, last)
    else:
        assert (city.between(first, last).first, city.between(first, last).last) == named


@pytest.mark.parametrize(("steps", "guess"), [(52, 0.99966), (26, 0.98201)])
def test_a_series_costs_what_all_its_steps_cost(steps, guess):
    """52 steps of 2/13 cost 8, for which one release is refused; 26 cost 4."""
    nobody = np.zeros(DOMAIN.shape, int)
    city = series({step: dh.publish(nobody, NEAR, "identity", Fraction(2, 13)) for step in range(steps)})
    facts, together = list_facts(city), list_facts(city)["series"]["together"]
    assert facts["epsilon"] == together["epsilon"] == 2 * steps / 13
    assert together["guess"] == facts["protection"][0]["guess"] == pytest.approx(guess, abs=1e-5)
    assert (facts["noise"], facts["weak_protection"]) == (city.first_release.mechanism.noise_rows(), city.weakness)
    assert (city.weakness is None) == (together["may_be_published"] == "yes") == (steps == 26)
    assert dh.write_statement(city).startswith("WEAK PROTECTION") == (steps == 52)
