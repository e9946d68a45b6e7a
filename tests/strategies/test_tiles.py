"""Tiles against the whole map: what is measured, what noise enters, and what is estimated, number for number."""

from __future__ import annotations

import numpy as np
import pytest

import deltahist as dh
from deltahist.budget import Budget
from deltahist.decode import decoder
from deltahist.mechanisms import Mechanism
from deltahist.strategies.tiles import Tiling

#: Shapes that leave a rest at the upper edges.
DOMAIN = dh.Domain((0, 0, 22, 33), (22, 33))


class FixedDraws:
    """Draws that are known as a whole: flat, by group, of the strategy's own order."""

    def __init__(self, strategy: dh.Strategy, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.whole = rng.integers(-40, 41, strategy.draws)
        self.groups = strategy.groups

    def __call__(self, group: int, part: int, shape: tuple[int, ...], rows: slice) -> np.ndarray:
        assert part == 0
        return self.whole[self.groups[group].members].reshape(shape)[rows]


def tilings() -> dict[str, Tiling]:
    return {"identity": _with_side(dh.strategies.Identity(DOMAIN), (8, 8))}


def _with_side(strategy: dh.Strategy, side: tuple[int, int]) -> Tiling:
    usual = strategy.tiling()
    return type(usual)(strategy, usual.layers, side)


@pytest.fixture(params=tilings())
def tiling(request: pytest.FixtureRequest) -> Tiling:
    return tilings()[request.param]


def measure_in_tiles(tiling: Tiling, counts: np.ndarray, draws: FixedDraws) -> tuple[np.ndarray, np.ndarray]:
    """Values of the whole strategy, and whether a tile or the top holds them, from slabs alone."""
    values, times = np.zeros((2, tiling.strategy.shape[0]), dtype=np.int64)
    top = tiling.noise_of_top(draws)
    for slab, noise in enumerate(tiling.noise(draws)):
        part = counts[tiling.cells((slab, 0))[0]]
        top = top + tiling.measure_top(slab, part)
        exact = tiling.measure(slab, part)
        noisy = [own + added for own, added in zip(exact, noise, strict=True)]
        for number, each in enumerate(tiling.cut(slab, noisy)):
            values[tiling.rows((slab, number))] = each
            times[tiling.rows((slab, number))] += 1
    values[tiling.top] = top
    times[tiling.top] += 1
    return values, times


def test_tiles_publish_the_numbers_of_the_whole_map(tiling: Tiling) -> None:
    counts = np.random.default_rng(0).poisson(3, DOMAIN.shape)
    draws = FixedDraws(tiling.strategy)
    values, times = measure_in_tiles(tiling, counts, draws)
    assert (times == 1).all()
    assert np.array_equal(values, tiling.strategy.measure(counts) + tiling.strategy.scatter(draws.whole))


@pytest.mark.parametrize("sources", [None, "boundary"])
def test_tiles_estimate_the_cells_of_the_whole_map(tiling: Tiling, sources: str | None) -> None:
    strategy = tiling.strategy
    near = dh.Neighbourhood(DOMAIN, delta=2, sources=sources)
    mechanism = Mechanism(near, strategy, Budget(epsilon=1))
    found = decoder(strategy, mechanism.laws, total_known=mechanism.total_known)
    values = np.random.default_rng(2).integers(-50, 90, strategy.shape[0])
    total = 4000 if mechanism.total_known else None
    tiles = [(i, j) for i in range(tiling.shape[0]) for j in range(tiling.shape[1])]
    parts = {tile: tiling.split(tile, values[tiling.rows(tile)]) for tile in tiles}
    sums = np.array([found.tile_summary(tiling, tile, parts[tile]) for tile in tiles]).reshape(*tiling.shape, -1)
    settled = found.settle_tiles(tiling, values[tiling.top], sums, total)
    cells = np.zeros(DOMAIN.shape)
    for tile in tiles:
        cells[tiling.cells(tile)] = found.tile_cells(tiling, tile, parts[tile], settled)
    np.testing.assert_allclose(cells, found.estimate(values, total), rtol=1e-9, atol=1e-9)
