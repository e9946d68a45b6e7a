"""Maps that are published in tiles: the promise holds from counts to file, and bugs of their noise are caught.

One map holds thousands of copies of two cells, one below the other, whose noise lies in two blocks with streams of
their own: copies share no value. A second audit is of draws that are asked for twice (`Balanced`).

The probability that a sound mechanism is refuted is at most 0.1% per audit. Of 100 audits with other seeds each, all
refuted noise of half the scale, a sensitivity that is less by one, a stream shared by blocks, and passes that disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse

import deltahist as dh
from deltahist.budget import Budget
from deltahist.mechanisms import Mechanism
from deltahist.noise import blocks
from deltahist.noise.blocks import BlockDraws
from deltahist.noise.exact import KeyStream
from deltahist.publishers import tiles as publisher
from deltahist.space import domain as space
from deltahist.strategies import tiles
from deltahist.strategies.base import Group
from deltahist.strategies.tiles import Layer, Tiling
from tests.audits.cases import BUGS, plan_audit
from tests.audits.harness import audit, pure, refuted, report, worst_pairs

#: Copies side by side along x, two rows each.
PAIRS = 8
CELLS = dh.Domain((0, 2), (2,))
SMALL = {"releases": 1500, "learning": 500}


@dataclass(frozen=True, eq=False)
class Balanced(dh.Strategy):
    """Two cells with one draw: added to the first, and, asked for again in the next slab, taken off the second."""

    domain: dh.Domain
    shape = (2, 2)
    draws = 1
    keeps_total = True
    determines_cells = True
    groups = (Group("moves", slice(0, 1)),)
    parts = (Group("cells", slice(0, 2)),)

    def _matmat(self, x):
        return x

    _rmatmat = _matmat

    def scatter(self, noise):
        return np.concatenate([noise, -noise])

    def changes(self, near):
        return scipy.sparse.csr_array(near.incidence()[[0]])

    def tiling(self):
        return BalancedTiling(self, [Layer(0)], side=(1, 1))


class BalancedTiling(Tiling):
    def noise(self, draws):
        yield [draws(0, 0, (1, 1), slice(0, 1))]
        yield [-draws(0, 0, (1, 1), slice(0, 1))]


@pytest.fixture
def cells_audit(tmp_path, monkeypatch):
    """An audit of `publish` with a file of tiles."""
    monkeypatch.setattr(space, "MOST_WHOLE", 2)
    monkeypatch.setattr(tiles, "SIDE", 64)
    monkeypatch.setattr(blocks, "_height", lambda shape: 1)  # rows of blocks, so that a copy lies in two of them

    def draw(counts, number, rng):
        width = -(-number // PAIRS)
        domain = dh.Domain((0, 0, 2 * PAIRS, width), (2 * PAIRS, width))
        whole = np.tile(np.repeat(counts[:, None], width, axis=1), (PAIRS, 1))
        near = dh.Neighbourhood(domain, 1)
        release = dh.publish(whole, near, "identity", draw.epsilon, out=tmp_path / "map.parquet", rng=rng)
        values = np.zeros(domain.shape, dtype=np.int64)
        for tile in np.ndindex(*release.tiling.shape):
            values[release.tiling.cells(tile)] = release.tile_values(tile)[0]
        copies = values.reshape(PAIRS, 2, width).transpose(0, 2, 1).reshape(-1, 2)
        total = np.full(len(copies), release.total // len(copies))
        return np.column_stack([copies, total])[:number]

    def run(seed, releases=None, learning=None):
        near = dh.Neighbourhood(CELLS, 1)
        strategy = dh.strategies.Identity(CELLS)
        draw.epsilon, enough = plan_audit(strategy, near)
        pairs = worst_pairs(strategy, near)
        return audit(draw, pairs, pure(draw.epsilon), releases=releases or enough, learning=learning, seed=seed)

    return run


def balanced_audit(seed):
    """An audit of draws that are asked for twice, release by release."""
    domain, epsilon = dh.Domain((0, 0, 2, 1), (2, 1)), Fraction(2)
    near, strategy = dh.Neighbourhood(domain, 1), Balanced(domain)
    mechanism = Mechanism(near, strategy, Budget(epsilon=epsilon))
    assert mechanism.sensitivity == 1

    def draw(counts, number, rng):
        found = [np.concatenate(list(publisher._values(counts, mechanism, rng))) for _ in range(number)]
        return np.column_stack([found, np.full(number, counts.sum())])

    pairs = worst_pairs(dh.strategies.Identity(domain), near)
    return audit(draw, pairs, pure(epsilon), seed=seed, releases=600, learning=200)


def test_a_map_in_tiles_keeps_its_promise(cells_audit):
    findings = cells_audit(1)
    assert not refuted(findings), report(findings)


def test_draws_that_are_asked_for_twice_keep_the_promise():
    findings = balanced_audit(2)
    assert not refuted(findings), report(findings)


def scaled(patch, factor):
    """Plant a bug: noise of `factor` times the scale."""
    right = BlockDraws.__init__

    def less(self, laws, rng=None):
        right(self, [replace(law, parameter=law.parameter * factor) for law in laws], rng)

    patch.setattr(BlockDraws, "__init__", less)


def shared(patch):
    """Plant a bug: all blocks of an array have one stream."""
    right = BlockDraws._key
    patch.setattr(BlockDraws, "_key", lambda self, *place: right(self, *place[:-1], 0))


BUGS_OF_CELLS = {
    "a tenth less noise": lambda patch: scaled(patch, Fraction(9, 10)),
    "half the noise": lambda patch: scaled(patch, Fraction(1, 2)),
    "sensitivity less by one": BUGS["sensitivity understated by one"],
    "a stream for two blocks": shared,
}


@pytest.mark.parametrize("bug", BUGS_OF_CELLS)
def test_bugs_beneath_tiles_are_caught(cells_audit, bug, monkeypatch):
    BUGS_OF_CELLS[bug](monkeypatch)
    assert refuted(cells_audit(3, **({} if "tenth" in bug else SMALL)))


def test_passes_that_disagree_are_caught(monkeypatch):
    monkeypatch.setattr(blocks, "KeyStream", lambda key: KeyStream())
    assert refuted(balanced_audit(4))


@pytest.mark.slow
def test_power(cells_audit):
    """At least 95 of 100 audits catch each bug; at a power of 99% fewer would have a chance of 3 in 10,000."""
    for bug, plant in BUGS_OF_CELLS.items():
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            caught = sum(refuted(cells_audit(1000 + k, **({} if "tenth" in bug else SMALL))) for k in range(100))
        print(f"{bug}: caught {caught} of 100")
        assert caught >= 95
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "KeyStream", lambda key: KeyStream())
        caught = sum(refuted(balanced_audit(1000 + k)) for k in range(20))
    print(f"passes that disagree: caught {caught} of 20")
    assert caught >= 19
