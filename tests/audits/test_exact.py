"""What a release reveals, computed exactly: no sampling, whole numbers and fractions only.

`publish` is run with its samplers replaced by recorders. Each noise draw becomes a mark that says which draw it is
and with what parameter, so that the released numbers show the mean of every row, the noise law it really got, and
that no draw is used twice. From these follows the largest ratio of probabilities over all outcomes, for all
neighbouring data sets; the neighbours are listed by the definition, without the package's own geometry.
"""

import functools
import math
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
from examples import STRATEGIES, gap_neighbours, quiet, random_domain, random_neighbourhood

from deltahist.errors import InputError
from deltahist.publishers import publication
from deltahist.space.domain import Domain
from deltahist.space.neighbourhood import Neighbourhood
from deltahist.strategies import CutAugmented, Hierarchical, Identity, ShiftedGrids
from tests.audits.cases import BUGS
from tests.audits.harness import edge_costs

_MARK = 1 << 32
EPSILON = Fraction(3, 7)
RHO = Fraction(2, 9)


class Recorder:
    """Stands in for both samplers: the i-th number drawn is i · 2³², its parameter is kept."""

    def __init__(self):
        self.parameters = [Fraction(0)]

    def draw(self, parameter, shape):
        first = len(self.parameters)
        self.parameters += [Fraction(parameter)] * int(np.prod(shape))
        return np.arange(first, len(self.parameters)).reshape(shape) * _MARK

    def draw_law(self, law, size, rng):
        return self.draw(law.parameter, size) if law.parameter else np.zeros(size, dtype=np.int64)

    def read(self, values):
        """(means, noise parameters) of released values; 0 stands for no noise."""
        marks = (values + _MARK // 2) // _MARK
        assert len(set(marks[marks != 0].tolist())) == np.count_nonzero(marks), "a draw is used twice"
        return values - marks * _MARK, [self.parameters[i] for i in marks]


@pytest.fixture
def recorder(monkeypatch):
    """Puts a recorder under `publish`; planted bugs come on top of it."""
    recorder = Recorder()
    monkeypatch.setattr(publication, "sample_law", recorder.draw_law)
    return recorder


# ------------------------------------------------------------------- neighbours by definition, and random cases


def neighbours(near):
    """All edges by definition: pairs of flat indices, None for outside."""
    moves, arrivals = gap_neighbours(near)
    return moves + [(None, j) for j in arrivals]


def moved(counts, edge):
    """The counts after one point has moved along an edge."""
    out = counts.copy().ravel()
    u, v = edge
    if u is not None:
        out[u] -= 1
    out[v] += 1
    return out.reshape(counts.shape)


NAMES = [name for name in STRATEGIES if name != "Spectral"] + ["greedy"]


def some_case(name, seed):
    """(strategy, neighbourhood, edges by definition, counts)."""
    rng = np.random.default_rng([seed, *name.encode()])
    near = random_neighbourhood(rng, random_domain(rng, most=(7, 5)))
    near = quiet(near.domain, min(near.delta, *near.domain.high), near.sources)  # δ is on the map
    if name == "greedy":
        strategy = CutAugmented.greedy(ShiftedGrids(near.domain, width=2, shift=1), near)
    else:
        strategy = STRATEGIES[name](rng, near.domain)
    return strategy, near, neighbours(near), rng.integers(1, 4, near.domain.shape)


each = pytest.mark.parametrize("name", NAMES)
CASES = 7


# ----------------------------------------------------------------------------------------------- exact losses


@functools.cache
def furthest(u):
    """Largest |y − u| − |y|, over y from beyond one mean to beyond the other; outside, it stays as at the ends."""
    return max(abs(y - u) - abs(y) for y in range(-abs(u) - 1, abs(u) + 2))


def log_ratio(changes, scales):
    """Largest log P(y | D) / P(y | D') over all y and all changes (..., rows), from the pmfs ∝ exp(−|k|/b); None if
    there is no bound.
    """
    changes = np.atleast_2d(changes)
    if changes[:, [b == 0 for b in scales]].any():
        return None
    unit = math.lcm(*(b.numerator for b in scales if b))
    values, place = np.unique(changes, return_inverse=True)
    ratios = np.array([furthest(u) for u in values.tolist()], dtype=object)[place].reshape(changes.shape)
    return Fraction(max(ratios @ [int(unit / b) if b else 0 for b in scales]), unit)


def divergence(change, variances):
    """ρ of the zCDP: Σ change² / (2 σ²); None if there is no bound."""
    if any(v == 0 and u for u, v in zip(change.tolist(), variances, strict=True)):
        return None
    return sum((Fraction(u * u) / (2 * v) for u, v in zip(change.tolist(), variances, strict=True) if u), Fraction(0))


def losses(recorder, strategy, near, edges, counts, measure, **options):
    """Exact privacy loss towards every neighbour, all of them through `publish`."""
    first = publication.publish(counts, near, strategy, **options)
    mean, parameters = recorder.read(first.values)
    for edge in edges:
        other = publication.publish(moved(counts, edge), near, strategy, **options)
        other_mean, other_parameters = recorder.read(other.values)
        assert other_parameters == parameters, "the noise depends on the data"
        assert other.total == first.total, "the published total tells neighbours apart"
        yield measure(mean - other_mean, parameters)


def spent(found):
    """The largest loss; infinite if any has no bound."""
    return max((math.inf if loss is None else loss for loss in found), default=Fraction(0))


def check_spent(name, seed, recorder):
    """The budget is kept, and spent to the last bit."""
    strategy, near, edges, counts = some_case(name, seed)
    most = spent(losses(recorder, strategy, near, edges, counts, log_ratio, epsilon=EPSILON))
    assert most in (EPSILON, 0)  # 0: no neighbour changes any row
    assert most or not abs(strategy.matrix() @ near.incidence()).sum()
    assert spent(losses(recorder, strategy, near, edges, counts, divergence, rho=RHO)) in (RHO, 0)


@each
def test_the_budget_is_kept_and_spent_to_the_last_bit(name, recorder):
    for seed in range(CASES):
        check_spent(name, seed, recorder)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "Tents"])  # a minute of fractions
@pytest.mark.parametrize("points", [2, 3])
def test_all_points_of_a_user_at_once(name, points, recorder):
    for seed in range(8):
        strategy, near, edges, counts = some_case(name, seed)
        rows, E = strategy.matrix().toarray(), np.zeros((near.domain.size, len(edges)), dtype=np.int64)
        for column, edge in enumerate(edges):
            E[:, column] = (moved(counts, edge) - counts).ravel()
        # every choice of edges, in either direction
        both = np.concatenate([rows @ E, -(rows @ E), 0 * rows[:, :1]], axis=1)
        both = np.unique(both, axis=1).T[:40]
        release = publication.publish(counts, near, strategy, epsilon=EPSILON, contributions=points)
        _, scales = recorder.read(release.values)
        choices = np.array(list(combinations_with_replacement(range(len(both)), points)))
        assert spent([log_ratio(both[choices].sum(axis=1), scales)]) <= EPSILON
        # all along the dearest edge: the whole budget
        dearest = spent([log_ratio(points * u, scales) for u in (rows @ E).T])
        assert dearest in (EPSILON, 0)
        release = publication.publish(counts, near, strategy, rho=RHO, contributions=points)
        _, variances = recorder.read(release.values)
        assert spent([divergence(points * u, variances) for u in (rows @ E).T]) in (RHO, 0)


def costs_more_than_one(strategy, near):
    """Whether the sensitivity is above one in both norms, so that one less is still a sensitivity."""
    costs = (edge_costs(strategy, near, norm) for norm in (1, 2))
    return all(max(cost, default=0) > denominator for cost, denominator in costs)


@each
@pytest.mark.parametrize("bug", ["noise scaled by 0.9", "sensitivity understated by one"])
def test_planted_bugs_break_the_bound(name, bug, recorder, monkeypatch):
    cases = [case for case in (some_case(name, seed) for seed in range(12)) if costs_more_than_one(*case[:2])]
    assert len(cases) >= 4
    BUGS[bug](monkeypatch)
    for case in cases:
        for measure, budget, most in ((log_ratio, "epsilon", EPSILON), (divergence, "rho", RHO)):
            found = losses(recorder, *case, measure, **{budget: most})
            assert any(loss is None or loss > most for loss in found)


@each
def test_the_edges_are_those_of_the_definition(name):
    for seed in range(CASES):
        _, near, edges, _ = some_case(name, seed)
        listed = {(None if u < 0 else u, v) for u, v in near.edges().tolist()}
        assert listed == set(edges)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("domain", [Domain((0, 4), (4,)), Domain((0, 0, 4, 4), (4, 4))])
@pytest.mark.parametrize("shares", [(0.1, 0.2, 0.3), (1e-3, 0.7, 1e3)])
def test_shares_given_as_floats(domain, shares, norm, recorder):
    """A share of 0.1 is a fraction with a denominator of 2⁵⁵: its products must not overflow."""
    near = Neighbourhood(domain, 1)
    strategy, counts = Hierarchical(domain, shares=shares), np.ones(domain.shape, dtype=np.int64)
    options = {"epsilon": EPSILON} if norm == 1 else {"rho": RHO}
    measure = log_ratio if norm == 1 else divergence
    edges = neighbours(near)
    assert spent(losses(recorder, strategy, near, edges, counts, measure, **options)) == (EPSILON if norm == 1 else RHO)


@pytest.mark.slow
@each
def test_many_cases(name, recorder):
    for seed in range(1000, 1400):
        check_spent(name, seed, recorder)


# -------------------------------------------------------------------------------------- what is public


def test_the_automatic_choice_does_not_see_the_data():
    near = Neighbourhood(Domain((0, 0, 8, 8), (8, 8)), 1)
    rng = np.random.default_rng(1)
    data = [np.zeros((8, 8), dtype=int), rng.poisson(100, (8, 8)), np.diag(np.arange(8) * 10_000)]
    releases = [publication.publish(c, near, epsilon=1, rng=np.random.default_rng(2)) for c in data]
    descriptions = [r.describe() | {"total": None} for r in releases]
    assert descriptions[0] == descriptions[1] == descriptions[2]
    noise = [r.values - r.strategy.measure(c) for r, c in zip(releases, data, strict=True)]
    assert (noise[0] == noise[1]).all()
    assert (noise[0] == noise[2]).all()


@pytest.mark.parametrize("sources", [None, "boundary"])
@pytest.mark.parametrize("dropped", [(), ("bad rows",), ("points outside",)])
def test_when_the_total_is_published(sources, dropped):
    near = Neighbourhood(Domain((0, 4), (4,)), 1, sources)
    if "points outside" in dropped and sources is None:
        with pytest.raises(InputError, match="boundary"):
            publication.publish([1, 2, 3, 4], near, Identity(near.domain), epsilon=1, dropped=dropped)
        return
    release = publication.publish([1, 2, 3, 4], near, Identity(near.domain), epsilon=1, dropped=dropped)
    assert release.total == (10 if sources is None and not dropped else None)
