"""Measured noise against the standard deviation that a release states, for every way to publish.

A case publishes the same data many times and subtracts the exact answers, which leaves the noise X. By the definition
of cost, noise as stated (`noise_rows`) must cost the budget for K points of a user. Group by group, drawn noise must be
as large as stated. Where values mix the noise of groups, T_g = |P_g X|² is compared, where P_g is the group's part of
the stated covariance. Estimates of cells, blocks and boxes are compared with their `std_error`.

False alarms: log(T_g / E T_g) may be five standard errors from 0. Under 20 other seeds no figure was beyond 3.5.
Power: every bug of `BUGS` was caught in every case under ten other seeds. A tenth too little noise passes here, and is
caught by tests/audits.
"""

import functools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import deltahist as dh
from deltahist.network import Diffusion, DiffusionMechanism, Network
from deltahist.preprocessing import Preprocessing
from deltahist.publishers import publication, publish_mechanism, publish_quantile, publish_sorted
from deltahist.strategies import CutAugmented, Flow, Hierarchical, ShiftedGrids, strategies

LINE, SQUARE = dh.Domain((0, 16), (16,)), dh.Domain((0, 0, 6, 6), (6, 6))
BUDGETS = {"laplace": {"epsilon": Fraction(1)}, "gaussian": {"rho": Fraction(1, 4)}}
LAWS = ("laplace", "gaussian")
USERS, RELEASES, CHAINS, SIGMAS = 4, 120, 15, 5
ON_LINE, FIXED = dh.Neighbourhood(LINE, 1), dh.Neighbourhood(SQUARE, 1)
INSIDE, LIMITED = dh.Neighbourhood(SQUARE, 1, "boundary"), dh.Neighbourhood(SQUARE, 1, limits=[(2, 2), ("any", 3)])
RING = dh.Neighbourhood.of(LINE, [(i, (i + step) % 16) for i in range(16) for step in (1, 5)], limits=[("any", 3)])
GREEDY = CutAugmented.greedy(ShiftedGrids(SQUARE, width=2, shift=1, m=1), FIXED)

#: Strategies and their neighbourhoods, and their noises where not both. Every registered class must be here.
STRATEGIES = {
    "identity": (FIXED, "identity"),
    "identity with limits": (LIMITED, "identity"),
    "wavelet": (FIXED, "wavelet"),
    "cumulative": (ON_LINE, "cumulative"),
    "hierarchical": (FIXED, "hierarchical"),
    "hierarchical with shares": (INSIDE, Hierarchical(SQUARE, 6, shares=(1, Fraction(1, 8)))),
    "shifted grids": (INSIDE, "shifted:2,1"),
    "dyadic grids": (ON_LINE, "dyadic"),
    "cut-augmented": (FIXED, GREEDY),
    "tents": (FIXED, "tents:2"),
    "tents with limits": (LIMITED, "tents:2"),
    "flow": (FIXED, "flow"),
    "flow with windows": (FIXED, Flow(SQUARE, widths=(3, 4))),
    "flow between blocks": (FIXED, "flow:2"),
    "flow with arrivals": (INSIDE, Flow(SQUARE, arrivals="boundary")),
    "flow with hubs": (ON_LINE, "auto", "laplace"),
    "flow on a graph": (RING, "graph"),
    "flow on a graph with arrivals": (dh.Neighbourhood.of(LINE, RING.pairs, sources=[3, 8], limits=()), "graph"),
    "spectral": (FIXED, "spectral", "gaussian"),
    "spectral with limits": (LIMITED, "spectral", "gaussian"),
    "optimal": (ON_LINE, "optimal", "gaussian"),
}
CASES = [(name, law) for name, (_, _, *laws) in STRATEGIES.items() for law in laws or LAWS]


def counts_on(domain):
    return np.arange(domain.size).reshape(domain.shape) % 7


def check_cost(mechanism):
    """Noise as stated costs what is promised for moves of K points at most, by the definition; and not half of it."""
    users, amount, strategy = mechanism.counting.contributions, float(mechanism.budget.amount), mechanism.strategy
    stated = np.array([row["std"] for row in mechanism.noise_rows()]) / units_of(mechanism)
    worst = 0.0
    for factor, moves in mechanism.neighbourhood.relations:
        changes = users * np.abs(strategy.changes(moves).toarray())
        cost = np.zeros(changes.shape[1])
        for group, std in zip(strategy.groups, stated, strict=True):
            if mechanism.budget.unit == "epsilon":  # discrete Laplace noise of scale b has a variance of 2 b² − 1/6
                cost += changes[group.members].sum(axis=0) / math.sqrt((std**2 + 1 / 6) / 2)
            else:
                cost += (changes[group.members] ** 2).sum(axis=0) / (2 * std**2)
        worst = max(worst, cost.max() / (amount * float(factor) ** mechanism.norm))
    assert 0.5 < worst <= 1.02


def units_of(mechanism):
    return np.array([float(group.unit) for group in mechanism.strategy.groups])


def check_groups(mechanism, noise):
    """Each group's part of the noise (releases, k) is as large as the stated standard deviations say."""
    strategy = mechanism.strategy
    deviation = np.empty(strategy.draws)
    for group, row, unit in zip(strategy.groups, mechanism.noise_rows(), units_of(mechanism), strict=True):
        deviation[group.members] = row["std"] / unit
    spread = deviation[:, None] * np.stack([strategy.gather(row) for row in np.eye(strategy.shape[0])], axis=1)
    size = np.sqrt((spread**2).sum(axis=0))  # of each value's noise
    spread, noise = spread / size, noise / size
    inverse = np.linalg.pinv(spread.T @ spread, rcond=1e-9, hermitian=True)
    found, mixing = noise @ inverse @ spread.T, spread @ inverse @ spread.T
    fourth = 3 if mechanism.budget.unit == "epsilon" else 0
    for group in strategy.groups:
        part = mixing[group.members].T @ mixing[group.members]
        expected = np.trace(part)
        error = math.sqrt((2 * (part**2).sum() + fourth * (np.diag(part) ** 2).sum()) / len(noise)) / expected
        ratio = (found[:, group.members] ** 2).sum() / len(noise) / expected
        assert abs(math.log(max(ratio, 1e-99))) <= SIGMAS * error, (group.name, ratio, error)


def check_errors(truth, releases):
    """Estimates of cells, blocks of two, and boxes across them are as far off as their standard errors say."""
    first, domain = releases[0], releases[0].domain
    side = range(domain.shape[0] + 1)
    corners = [[a, b] if domain.ndim == 1 else [a, 1, b, 4] for a in side for b in side if a < b]
    blocks = np.sqrt(first.block_moments(2).variance)
    stated = np.concatenate([first.to_pandas()["std_error"], blocks, dh.answer(first, corners)["std_error"]])
    right, found = sums_of(truth, domain, corners), np.array([sums_of(r.cells(), domain, corners) for r in releases])
    known = stated > 1e-6
    assert np.allclose(found[:, ~known], right[~known], atol=1e-5)
    squares = ((found - right)[:, known] / stated[known]) ** 2
    if not known.any():
        return
    each = squares.mean(axis=1)
    assert abs(each.mean() - 1) <= SIGMAS * max(each.std(), 0.02) / math.sqrt(len(each))


def sums_of(cells, domain, corners):
    """Sums of cells, of blocks of two cells a side, and of boxes."""
    if domain.ndim == 1:
        blocks, boxes = cells.reshape(-1, 2).sum(axis=1), [cells[a:b].sum() for a, b in corners]
    else:
        n = domain.shape[0] // 2
        blocks = cells.reshape(n, 2, n, 2).sum(axis=(1, 3)).ravel()
        boxes = [cells[a:c, b:d].sum() for a, b, c, d in corners]
    return np.concatenate([cells.ravel(), blocks, boxes])


def measured_histograms(name, law, users=USERS, seed=1):
    near, strategy, *_ = STRATEGIES[name]
    rng, counts = np.random.default_rng(seed), counts_on(near.domain)
    releases = [dh.publish(counts, near, strategy, **BUDGETS[law], contributions=users, rng=rng)]
    mechanism = releases[0].mechanism
    releases += [publish_mechanism(mechanism, counts, rng=rng) for _ in range(RELEASES - 1)]
    check_cost(mechanism)
    noise = np.array([each.values for each in releases]) - mechanism.strategy.measure(counts)
    check_groups(mechanism, noise)
    return counts, releases


def test_every_registered_strategy_is_measured():
    made = {
        type(dh.publish(counts_on(near.domain), near, strategy, **BUDGETS[law]).strategy).__name__
        for name, law in CASES
        for near, strategy, *_ in [STRATEGIES[name]]
    }
    assert made == set(strategies())


@pytest.mark.parametrize(("name", "law"), CASES)
@pytest.mark.parametrize("users", [1, USERS])
def test_counts_have_the_noise_that_is_stated(name, law, users):
    counts, releases = measured_histograms(name, law, users)
    if users == 1 and releases[0].mechanism.determines_cells:
        check_errors(counts, releases)


# --- chains ---------------------------------------------------------------------------------------------------

#: What `refine` and `tighten` keep: rows, several groups, flows, and a transform that rounds.
IN_CHAINS = [
    ("identity", "laplace"), ("hierarchical with shares", "laplace"), ("tents", "laplace"),
    ("flow between blocks", "laplace"), ("flow", "gaussian"), ("hierarchical", "gaussian"), ("spectral", "gaussian"),
]  # fmt: skip


def measured_chains(name, law, folder, users=USERS, seed=1):
    """First releases, refined ones, and copies made with and without the state, each by what it states."""
    near, strategy, *_ = STRATEGIES[name]
    rng, counts = np.random.default_rng(seed), counts_on(near.domain)
    ((unit, amount),) = BUDGETS[law].items()
    made = {"first": [], "refined": [], "copies": [], "copies without the state": []}
    for number in range(CHAINS):
        path = folder / f"{name} {law} {number}.state"
        first = dh.publish(counts, near, strategy, **{unit: amount / 3}, contributions=users, state=path, rng=rng)
        made["first"].append(first)
        made["refined"].append(dh.refine(first, path, **{unit: amount}, rng=rng))
        made["copies"].append(dh.tighten(made["refined"][-1], state=path, **{unit: amount / 2}, rng=rng))
        if first.mechanism.scatters_linearly:
            plain = dh.publish(counts, near, strategy, **{unit: amount}, contributions=users, rng=rng)
            made["copies without the state"].append(dh.tighten(plain, **{unit: amount / 2}, rng=rng))
        path.unlink()
    for releases in filter(None, made.values()):
        mechanism = releases[0].mechanism
        check_cost(mechanism)
        noise = np.array([each.values for each in releases]) - mechanism.strategy.measure(counts)
        check_groups(mechanism, noise)


@pytest.mark.parametrize(("name", "law"), IN_CHAINS)
def test_chains_have_the_noise_that_is_stated(name, law, tmp_path):
    measured_chains(name, law, tmp_path)


# --- sorted points, quantiles, shares of a network --------------------------------------------------------------


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("users", [1, USERS])
@pytest.mark.parametrize("group", [1, 3])
def test_sorted_points_have_the_noise_that_is_stated(law, users, group, tmp_path):
    """K D/ε, or K D/√(2ρ), for each sum; a refined release has that of its last budget."""
    near, rng = dh.Neighbourhood(dh.Domain((0, 100), (100,)), 2), np.random.default_rng(1)
    points = rng.uniform(0, 100, 900)
    ((unit, amount),) = BUDGETS[law].items()
    state, how = tmp_path / "s", {"group": group, "contributions": users, "rng": rng}
    releases = [publish_sorted(points, near, **{unit: amount}, **how)]
    first = publish_sorted(points, near, **{unit: amount / 3}, state=state, **how)
    releases += [first, dh.refine(first, state, **{unit: amount}, rng=rng)]
    releases.append(dh.tighten(releases[0], **{unit: amount / 2}, rng=rng))
    for release in releases:
        (row,) = release.mechanism.noise_rows()
        scale = users * near.radius / float(release.mechanism.budget.amount)
        right = math.sqrt(2) * scale if unit == "epsilon" else math.sqrt(users * near.radius * scale / 2)
        assert row["std"] == pytest.approx(right, rel=1e-6)
        noise = release.values - release.mechanism.measure(release.mechanism.check_data(points))
        error = math.sqrt((5 if unit == "epsilon" else 2) / len(noise))
        assert abs(math.log(max(np.mean((noise / row["std"]) ** 2), 1e-99))) <= SIGMAS * error


@pytest.mark.parametrize("users", [1, USERS])
def test_quantiles_have_the_noise_of_their_law(users):
    """A place at distance d from a single point has the law e^(−ε ⌈d/D⌉ / 2K). For points at equal gaps, noise is
    Student's t in proportion to the largest e^(−βt) min(D, (t + 1) K gap), with β = ε/4 and the factor 3/(√2 ε).

    400 draws each; a median may be off by a third of itself, five of its standard errors.
    """
    near, rng = dh.Neighbourhood(dh.Domain((0, 100), (100,)), 1), np.random.default_rng(2)
    drawn = [publish_quantile([50.0], 0.5, near, 1, contributions=users, rng=rng).value for _ in range(400)]
    d = np.linspace(0, 50, 5001)[1:] - 0.005
    chance = np.exp(-np.ceil(d) / (2 * users))
    median = d[np.searchsorted(chance.cumsum(), chance.sum() / 2)]
    assert np.median(np.abs(np.array(drawn) - 50)) == pytest.approx(median, rel=1 / 3)
    gap, how = 1 / 16, {"method": "smooth", "contributions": users, "rng": rng}
    points = np.arange(1, 1600) * gap
    smooth = max(math.exp(-t / 4) * min(1, (t + 1) * users * gap) for t in range(100))
    drawn = [publish_quantile(points, 0.5, near, 1, **how).value for _ in range(400)]
    assert np.median(np.abs(np.array(drawn) - 50)) == pytest.approx(smooth * math.sqrt(3), rel=0.3)


def test_shares_of_a_network_have_the_error_that_is_stated():
    """Towards users at distances 1, 2 and 3, of 2,000 users' places and bits: five standard errors of each."""
    number, rng = 2000, np.random.default_rng(1)
    owners = [f"o{i}" for i in range(number)]
    network = Network.from_edges([*(("a", owner) for owner in owners), ("a", "b"), ("b", "c")])
    places = pd.DataFrame(rng.uniform(-1e5, 1e5, (number, 2)), columns=["x", "y"], index=owners)
    bits = pd.Series(np.arange(number) % 2, index=owners)
    shared = Diffusion(places, DiffusionMechanism(network, "exp(3-d)", 100, columns=("x", "y")), rng=rng)
    coarse = Diffusion(bits, DiffusionMechanism(network, "1:2,2:1,3:0.5"), rng=rng)
    for distance, requester in enumerate("abc", 1):
        found = shared.to(requester).set_index("owner").loc[owners]
        stated = found["rmse"].iloc[0]
        assert stated == pytest.approx(math.sqrt(6) * 100 / math.exp(3 - distance), rel=0.01)
        assert np.sqrt(((found[["x", "y"]] - places) ** 2).sum(axis=1).mean()) == pytest.approx(stated, rel=0.09)
        found = coarse.to(requester).set_index("owner").loc[owners]
        flipped = found["flipped"].iloc[0]
        assert flipped == pytest.approx(1 / (1 + math.exp(2 / 2 ** (distance - 1))))
        assert (found["bit"] != bits).mean() == pytest.approx(flipped, abs=0.056)


# --- planted bugs ---------------------------------------------------------------------------------------------


def scale_drawn(patch, shares):
    """Plant a bug: multiply the drawn noise of each group by the factors `shares(mechanism)`."""
    right, right_chain = publication.draw_noise, publication.draw_chain

    def narrow(mechanism, rng):
        drawn = right(mechanism, rng)
        factors = shares(mechanism)
        return [np.rint(each * factor).astype(np.int64) for each, factor in zip(drawn, factors, strict=True)]

    def narrow_chain(mechanism, before, rng):
        drawn = right_chain(mechanism, before, rng)
        for (members, _), factor in zip(mechanism.noise_groups, shares(mechanism), strict=True):
            drawn[members] = np.rint(drawn[members] * factor)
        return drawn

    patch.setattr(publication, "draw_noise", narrow)
    patch.setattr(publication, "draw_chain", narrow_chain)


def understate(patch):
    """Plant a bug: forget K where noise is scaled, so that stated noise agrees with drawn noise."""
    right = dh.Mechanism.laws.func
    patch.setattr(dh.Mechanism, "laws", property(lambda self: right(self.with_changes(counting=Preprocessing(1)))))


BUGS = {
    "K ignored": lambda patch: scale_drawn(patch, lambda m: [1 / m.counting.contributions] * len(m.laws)),
    "K ignored and stated so": understate,
    "no noise at the top": lambda patch: scale_drawn(patch, lambda m: [0] + [1] * (len(m.laws) - 1)),
    "no noise at the bottom": lambda patch: scale_drawn(patch, lambda m: [1] * (len(m.laws) - 1) + [0]),
    "a hundredth": lambda patch: scale_drawn(patch, lambda m: [0.01] * len(m.laws)),
    # One group alone counts as one of the others.
    "all groups but the first at a thousandth": lambda patch: scale_drawn(
        patch, lambda m: [float(len(m.laws) > 1)] + [0.001] * (len(m.laws) - 1)
    ),
}
#: Cases in which all bugs are planted quickly: groups of rows, rows of very unlike noise, noise that flows.
QUICK = ["hierarchical with shares", "tents", "flow between blocks"]


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize(("name", "law"), [case for case in CASES if case[0] in QUICK] + [("chain", "")])
def test_missing_noise_is_caught(bug, name, law, monkeypatch, tmp_path):
    BUGS[bug](monkeypatch)
    chains = functools.partial(measured_chains, "flow between blocks", "laplace", tmp_path)
    with pytest.raises(AssertionError):
        (chains if name == "chain" else functools.partial(measured_histograms, name, law))()
