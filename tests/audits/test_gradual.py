"""Chains of releases: all of them together cost the last budget.

Exactly, on small domains; statistically, through the real `publish` and `refine`; with bugs planted beneath them.
Statistical audits have a false-alarm probability of 0.1% each (`harness.ERROR`). One call publishes and refines 20,000
cells, each of which is a release of its own: a move of one point changes two cells by one, and noise of scale 2/ε makes
each of them ε/2-private.
"""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest

import deltahist as dh
from deltahist.mechanisms.base import Chain
from deltahist.noise import samplers
from deltahist.noise.exact import InversionTable
from deltahist.noise.samplers import LaplaceSampler, RoundedGaussianSampler
from deltahist.publishers.publication import draw_chain, released_noise
from tests.audits.cases import understated_sensitivity
from tests.audits.harness import ERROR, Pair, audit, gaussian, pure, refuted, report

CELLS = 20_000
#: Of a chain's releases; a cell is private at half of each.
EPSILONS = (Fraction(1), Fraction(2), Fraction(4))


# --------------------------------------------------------------------------------------------------- exactly


def small_mechanisms():
    """Every way in which noise enters, on domains whose edges can be gone through."""
    line, square = dh.Domain((0, 5), (5,)), dh.Domain((0, 0, 4, 4), (4, 4))
    for near, strategy, unit in (
        (dh.Neighbourhood(line, 1), dh.strategies.Identity(line), "epsilon"),
        (dh.Neighbourhood(line, 1, sources="boundary"), dh.strategies.Hierarchical(line), "epsilon"),
        (dh.Neighbourhood(line, 2), dh.strategies.Flow(line), "rho"),
        (dh.Neighbourhood(square, 1), dh.strategies.Flow(square, widths=(2, 3)), "epsilon"),
        (dh.Neighbourhood(square, 1), dh.strategies.Flow(square, widths=(2,)), "rho"),
        (dh.Neighbourhood(square, 2), dh.strategies.Flow(square, block=2), "epsilon"),
        (dh.Neighbourhood(square, 1, sources="boundary"), dh.strategies.Flow(square, arrivals="boundary"), "rho"),
        (dh.Neighbourhood(square, 1), dh.strategies.Spectral(dh.Neighbourhood(square, 1)), "rho"),
    ):
        chain = Chain("0" * 32, (Fraction(1, 2),))
        yield dh.Mechanism(near, strategy, dh.Budget(**{unit: Fraction(1, 2)}), chain=chain)


@pytest.mark.parametrize("mechanism", [*small_mechanisms()], ids=lambda m: f"{m.strategy.name} {m.budget.unit}")
def test_noise_moved_by_an_edge_moves_the_release_by_it(mechanism):
    """R(η + U_e) = R(η) + A E_e for the noise of chains, on their lattices, for every edge: what the proof asks for.

    And Σ |U_e| / b ≤ ε, or Σ U_e² / (2σ²) ≤ ρ, in fractions, with equality for the dearest edge.
    """
    strategy, near = mechanism.strategy, mechanism.neighbourhood
    draws = draw_chain(mechanism, None, np.random.default_rng(1))
    unit = np.ones(mechanism.draws, dtype=np.int64)
    for members, law in mechanism.noise_groups:
        made = samplers.sampler_of(law)
        unit[members] = 1 << made.bits if isinstance(made, RoundedGaussianSampler) else 1
    changes = strategy.changes(near).toarray()
    moved = strategy.matrix().toarray() @ near.incidence().toarray()
    before, dearest = released_noise(mechanism, draws), Fraction(0)
    for e in range(changes.shape[1]):
        assert (released_noise(mechanism, draws + unit * changes[:, e]) == before + moved[:, e]).all()
        cost = Fraction(0)
        for members, law in mechanism.noise_groups:
            for u in np.atleast_1d(changes[:, e][members]).tolist():
                cost += abs(u) / law.parameter if law.kind == "laplace" else Fraction(u * u) / (2 * law.parameter)
        dearest = max(dearest, cost)
    assert dearest <= Fraction(1, 2)
    if mechanism.budget.unit == "epsilon" or strategy.row_by_row:
        assert dearest == Fraction(1, 2)


@pytest.mark.parametrize("levels", [EPSILONS[:2], EPSILONS, (Fraction(1, 3), Fraction(2, 5), Fraction(1, 2))])
def test_joint_laws_cost_the_last_level_and_no_more(levels):
    """P(y_1, …, y_m) from what `refine` draws from, with 50 digits: ratios between neighbours on a grid of values."""
    with mpmath.workdps(50):
        rates = [mpmath.mpf(c.numerator) / c.denominator for c in levels]
        p = [mpmath.exp(-c) for c in rates]

        def step(i, x, v):
            """P(V_(i+1) = v | V_i = x) by the parts that are drawn: over zero, towards it, stay, outwards."""
            s, f = p[i], p[i + 1]
            inwards, keeps, r, both = (1 - s * f) / (1 - f * f), (1 - s * s) / (1 - s * f), f / s, s * f
            if x < 0:
                x, v = -x, -v
            if v < 0:
                return (1 - inwards) * (1 - both) * both ** (-v - 1)
            if v < x:
                return inwards * (1 - r) * r**v
            if v == x:
                return inwards * ((1 - r) * r**v + r ** (x + 1) * keeps)
            return inwards * r ** (x + 1) * (1 - keeps) * (1 - both) * both ** (v - x - 1)

        def joint(values):
            out = (1 - p[0]) / (1 + p[0]) * p[0] ** abs(values[0])
            for i, (x, v) in enumerate(itertools.pairwise(values)):
                out *= step(i, x, v)
            return out

        span = range(-3, 4) if len(levels) == 3 else range(-6, 7)
        worst = max(
            abs(mpmath.log(joint(y) / joint([k - 1 for k in y]))) for y in itertools.product(span, repeat=len(levels))
        )
        assert abs(worst - rates[-1]) < mpmath.mpf(10) ** -40  # never more, and reached


# ---------------------------------------------------------------------------------------------- statistically


def pair(releases):
    """A cell with one point or none, seen in so many releases; to an observer each is worth what its ε is."""
    counts = [np.array([1]), np.array([0])]
    ones = np.ones(releases, dtype=np.int64)
    return Pair("a cell with a point or none", *counts, 0 * ones, ones, 2 ** np.arange(releases))


def publish_cells(folder, continue_chain, **budget):
    """Releases of single cells from the real functions: (cells, releases + 1), with a last column for no total.

    `continue_chain` takes the first release of a chain, the path of its state and rng; it returns all that is seen.
    """
    near = dh.Neighbourhood(dh.Domain((0, CELLS), (CELLS,)), 1)

    def draw(counts, number, rng):
        out = []
        for _ in range(-(-number // CELLS)):
            path = folder / "chain.state"
            first = dh.publish(np.full(CELLS, counts[0]), near, "identity", **budget, state=path, rng=rng)
            seen = continue_chain(first, path, rng)
            path.unlink()
            out.append(np.column_stack([*(release.values for release in seen), np.full(CELLS, -1)]))
        return np.concatenate(out)[:number]

    return draw


def audit_cells(draw, columns, unit, promised, releases, seed):
    """Audit releases of a cell by half of what is promised: a move changes two cells."""
    claims = pure(promised / 2) if unit == "epsilon" else (lambda _: gaussian(promised / 2)(pair(1)))
    return audit(draw, [pair(columns)], claims, releases=releases, seed=seed, error=ERROR)


def joint_audit(folder, amounts, unit="epsilon", releases=60_000, seed=1):
    def refine_on(release, path, rng):
        seen = [release]
        for amount in amounts[1:]:
            seen.append(dh.refine(seen[-1], path, **{unit: amount}, rng=rng))
        return seen

    draw = publish_cells(folder, refine_on, **{unit: amounts[0]})
    return audit_cells(draw, len(amounts), unit, amounts[-1], releases, seed)


@pytest.mark.parametrize("number", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_pairs_and_triples_of_releases_cost_the_last_budget(tmp_path, number):
    findings = joint_audit(tmp_path, EPSILONS[:number])
    assert not refuted(findings), report(findings)


def test_pairs_of_gaussian_releases_cost_the_last_budget(tmp_path):
    findings = joint_audit(tmp_path, (Fraction(1, 4), Fraction(1, 2)), "rho", releases=20_000)
    assert not refuted(findings), report(findings)


def independent(self, values, level, finer, *, rng=None):
    """Planted: the next release has noise of its own."""
    return type(self).start(self, finer, np.shape(values), rng=rng)


def too_fine(self, values, level, finer, *, rng=None):
    """Planted: the noise is refined twice as far as is paid for."""
    return REFINE[type(self)](self, values, level, 2 * finer, rng=rng)


REFINE = {LaplaceSampler: LaplaceSampler.refine, RoundedGaussianSampler: RoundedGaussianSampler.refine}
BUGS = {"an independent redraw": independent, "twice too fine": too_fine}


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("number", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_bugs_beneath_a_chain_are_caught(tmp_path, monkeypatch, bug, number):
    monkeypatch.setattr(LaplaceSampler, "refine", BUGS[bug])
    assert refuted(joint_audit(tmp_path, EPSILONS[:number]))


@pytest.mark.parametrize("bug", BUGS)
def test_bugs_beneath_a_gaussian_chain_are_caught(tmp_path, monkeypatch, bug):
    monkeypatch.setattr(RoundedGaussianSampler, "refine", BUGS[bug])
    assert refuted(joint_audit(tmp_path, (Fraction(1, 4), Fraction(1, 2)), "rho", releases=20_000))


@pytest.mark.slow
def test_a_wrong_atom_is_caught(tmp_path, monkeypatch):
    """What neither jumps over zero nor goes towards it always stays: the value is kept too often."""
    never = InversionTable([(0, 0)], lambda k, bits: (0, 0))
    monkeypatch.setattr(samplers, "_outward_table", lambda a, b: never)
    assert refuted(joint_audit(tmp_path, EPSILONS[:2], releases=200_000))


def test_an_understated_sensitivity_beneath_a_chain_is_caught(tmp_path, monkeypatch):
    understated_sensitivity(monkeypatch)
    assert refuted(joint_audit(tmp_path, EPSILONS[:2]))


# ---------------------------------------------------------------------------------------------- copies

#: A release and a more private copy of it, made with the state; and how many cells of either are looked at.
COPIES = {"epsilon": ((Fraction(4), Fraction(1)), 20_000), "rho": ((Fraction(1, 2), Fraction(1, 8)), 40_000)}


def copy_audit(folder, unit, together, seed=1):
    """Audit copies by what they promise; or, `together`, copies and their releases by what the releases cost."""
    (amount, less), releases = COPIES[unit]

    def copy(release, path, rng):
        return [dh.tighten(release, **{unit: less}, state=path, rng=rng), release][: 1 + together]

    draw = publish_cells(folder, copy, **{unit: amount})
    return audit_cells(draw, 1 + together, unit, amount if together else less, releases, seed)


def keeps_the_noise(self, values, level, coarser, *, rng=None):
    """Planted: the copy is the release itself, with the promise of a copy."""
    return np.array(values)


def half_as_far(self, values, level, coarser, *, rng=None):
    """Planted: the copy has the noise of a level half way between, which costs more than is said."""
    return TIGHTEN[type(self)](self, values, level, (level + coarser) / 2, rng=rng)


TIGHTEN = {LaplaceSampler: LaplaceSampler.tighten, RoundedGaussianSampler: RoundedGaussianSampler.tighten}
#: What is wrong, and whether it shows in the copy alone or in the copy with its release.
COPY_BUGS = {
    "keeps the noise": (keeps_the_noise, False),
    "half as far": (half_as_far, False),
    "an independent redraw": (independent, True),
}


@pytest.mark.parametrize("unit", COPIES)
@pytest.mark.parametrize("together", [False, True])
def test_copies_made_with_a_state_cost_what_they_say(tmp_path, unit, together):
    findings = copy_audit(tmp_path, unit, together)
    assert not refuted(findings), report(findings)


@pytest.mark.parametrize("unit", COPIES)
@pytest.mark.parametrize("bug", COPY_BUGS)
def test_bugs_beneath_a_copy_are_caught(tmp_path, monkeypatch, unit, bug):
    wrong, together = COPY_BUGS[bug]
    monkeypatch.setattr(LaplaceSampler if unit == "epsilon" else RoundedGaussianSampler, "tighten", wrong)
    assert refuted(copy_audit(tmp_path, unit, together))


@pytest.mark.slow
@pytest.mark.parametrize("unit", COPIES)
def test_false_alarms_and_power_of_audits_of_copies(tmp_path, monkeypatch, unit):
    """30 audits each with other seeds: no sound copy is refuted, and every planted bug is caught."""

    def refutations(together):
        return sum(refuted(copy_audit(tmp_path, unit, together, seed)) for seed in range(100, 130))

    assert refutations(False) == refutations(True) == 0
    for wrong, together in COPY_BUGS.values():
        monkeypatch.setattr(LaplaceSampler if unit == "epsilon" else RoundedGaussianSampler, "tighten", wrong)
        assert refutations(together) == 30


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_false_alarms_and_power(tmp_path, monkeypatch, unit):
    """30 audits each with other seeds: no sound chain is refuted, and every planted bug is caught."""
    amounts = EPSILONS[:2] if unit == "epsilon" else (Fraction(1, 4), Fraction(1, 2))
    size = {"releases": 60_000 if unit == "epsilon" else 20_000}

    def refutations():
        return sum(refuted(joint_audit(tmp_path, amounts, unit, seed=seed, **size)) for seed in range(100, 130))

    assert refutations() == 0
    for bug in BUGS.values():
        monkeypatch.setattr(LaplaceSampler if unit == "epsilon" else RoundedGaussianSampler, "refine", bug)
        assert refutations() == 30
