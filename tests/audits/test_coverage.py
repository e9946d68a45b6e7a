"""Intervals hold the truth as often as they say: 94-96% for the nominal 95%, averaged over cell-aligned boxes.

One interval is taken from `answer` for a real release; it is public and the same for every release of the same
shape. The noise of many releases is then drawn at once and decoded by the release's own decoder, as a matrix.

False alarms: the answers of one release share their noise, so that only releases count as independent. At worst
all answers of a release hold or miss together; then the mean over 12,000 releases strays by 0.01 from 0.95 with a
probability of 5 · 10⁻⁷, and all cases below together by less than 10⁻⁴.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

import deltahist as dh
from deltahist.strategies import Cumulative, CutAugmented, Hierarchical, Identity, ShiftedGrids, Wavelet, dyadic_grids
from tests.audits.harness import draw_noise

RELEASES, BOXES = 12_000, 60


def windows(domain):
    """Single cells, and longer rows that overlap."""
    cells = [(i,) for i in range(domain.size)]
    return CutAugmented(domain, (*cells, *(tuple(range(i, i + 9)) for i in range(0, domain.size - 8, 3))))


#: Name -> domain's shape and strategy; each determines every cell.
DETERMINED = {
    "Identity, 64": ((64,), Identity),
    "Cumulative suffix, 64": ((64,), Cumulative),
    "Cumulative prefix, 64": ((64,), lambda domain: Cumulative(domain, "prefix")),
    "Hierarchical 2, 64": ((64,), Hierarchical),
    "Hierarchical 3, irregular, 50": ((50,), lambda domain: Hierarchical(domain, 3)),
    "Hierarchical 4 with shares, 64": ((64,), lambda domain: Hierarchical(domain, 4, (1, 1, 2, Fraction(7, 2)))),
    "Wavelet, 64": ((64,), Wavelet),
    "Wavelet, irregular, 50": ((50,), Wavelet),
    "ShiftedGrids dyadic, 64": ((64,), lambda domain: dyadic_grids(domain, 1)),
    "ShiftedGrids, 50": ((50,), lambda domain: ShiftedGrids(domain, width=5, shift=1)),
    "CutAugmented, 50": ((50,), windows),
    "Identity, 16 × 16": ((16, 16), Identity),
    "Cumulative, 16 × 16": ((16, 16), Cumulative),
    "Hierarchical 2, 16 × 16": ((16, 16), Hierarchical),
    "Hierarchical 3, irregular, 12 × 9": ((12, 9), lambda domain: Hierarchical(domain, 3)),
    "Wavelet, 12 × 9": ((12, 9), Wavelet),
    "CutAugmented, 12 × 9": ((12, 9), windows),
}
#: An irregular tree beyond the dense decoder, whose variance is a bound.
LARGE = {"Hierarchical 2, irregular, 40 × 27": ((40, 27), Hierarchical)}
BUDGETS = [{"epsilon": 1.0}, {"epsilon": 0.1}, {"rho": 0.5}, {"rho": 0.005}]


def coverage(case, sources, budget, *, cells=False, releases=RELEASES, seed=1):
    """Share of (release, box) pairs whose interval holds the truth, over boxes that are not answered exactly."""
    shape, make = case
    rng = np.random.default_rng(seed)
    domain = dh.Domain((0,) * len(shape) + shape, shape)
    near = dh.Neighbourhood(domain, 1, sources)
    release = dh.publish(rng.integers(0, 90, shape), near, make(domain), rng=rng, **budget)
    assert release.strategy.determines_cells
    low = np.column_stack([rng.integers(0, n, BOXES) for n in shape])
    work = (
        dh.workloads.boxes(np.column_stack([low, low + 1]))
        if cells
        else dh.workloads.all_ranges(domain).sample(BOXES, seed)
    )
    table = dh.answer(release, work)
    some = (table["std_error"] > 0).to_numpy()
    below, above = ((table["estimate"] - table["low"])[some], (table["high"] - table["estimate"])[some])
    # Decoding is linear: columns are the cells' estimates from a single released value.
    total = None if release.total is None else 0
    decode = np.column_stack([release.decoder.estimate_cells(e, total).ravel() for e in np.eye(len(release.values))])
    error = draw_noise(release.mechanism, releases, rng) @ (work.matrix(domain) @ decode)[some].T
    slack = 1e-9  # rounding in a noise that is all but whole
    return float(((error <= below.to_numpy() + slack) & (error >= -above.to_numpy() - slack)).mean())


@pytest.mark.parametrize("name", DETERMINED)
def test_intervals_hold_the_truth(name):
    # One law and membership of each kind per strategy here; the slow test has all of them.
    number = list(DETERMINED).index(name)
    sources = (None, "boundary")[number % 2]
    for budget in (BUDGETS[number % 2], BUDGETS[2 + number // 2 % 2]):
        assert 0.94 < coverage(DETERMINED[name], sources, budget) < 0.96, budget


@pytest.mark.parametrize("name", ["Identity, 64", "Hierarchical 2, 16 × 16", "Wavelet, 12 × 9"])
def test_intervals_of_single_cells_hold_the_truth(name):
    # Single Laplace draws are the heaviest tails there are, and the most discrete ones.
    assert 0.94 < coverage(DETERMINED[name], None, {"epsilon": 1.0}, cells=True) < 0.96


@pytest.mark.slow
@pytest.mark.parametrize("name", DETERMINED)
@pytest.mark.parametrize("sources", [None, "boundary"])
def test_intervals_hold_the_truth_under_every_law(name, sources):
    for budget in BUDGETS:
        for cells in (False, True):
            found = coverage(DETERMINED[name], sources, budget, cells=cells, seed=2)
            assert 0.94 < found < 0.96, (budget, cells, found)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("sources", [None, "boundary"])
def test_intervals_from_a_bound_hold_the_truth(name, sources):
    # 2,000 releases, all answers of one at worst alike: a false alarm (0.025 off) is less likely than 10⁻⁶.
    for budget in BUDGETS[::2]:
        found = coverage(LARGE[name], sources, budget, releases=2000, seed=4)
        assert 0.94 < found < 0.97, (budget, found)


@pytest.mark.parametrize("epsilon", [3.0, 8.0])
def test_where_noise_has_few_values_the_nearest_level_is_held(epsilon):
    """A range of suffix sums is a sum of two draws, or one: at large ε no set of whole numbers has 95%."""
    scale = 1 / epsilon  # the sensitivity is 1
    k = np.arange(-60, 61)
    one = np.exp(-np.abs(k) / scale)
    one /= one.sum()
    levels = []
    for pmf in (one, np.convolve(one, one, mode="same")):
        held = [pmf[(k >= -b) & (k <= a)].sum() for a in range(9) for b in (a, a - 1) if b >= 0]
        levels.append(min(held, key=lambda level: abs(level - 0.95)))
    found = coverage(DETERMINED["Cumulative suffix, 64"], None, {"epsilon": epsilon}, seed=5)
    assert min(levels) - 0.005 < found < max(levels) + 0.005
    assert math.isclose(found, levels[1], abs_tol=0.02)
