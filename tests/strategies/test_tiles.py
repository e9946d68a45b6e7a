"""Tiles against the whole map: what is measured, what noise enters, and what is estimated, number for number."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest
from examples import STRATEGIES, quiet, random_flow
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.decode import decoder
from deltahist.privacy import Laplace
from deltahist.strategies import Flow, Hierarchical, Identity, Tents
from deltahist.strategies.flow.noise import DIAGONAL, STRAIGHT
from deltahist.strategies.tiles import Tiling

#: A shape that leaves a rest at the upper edges.
DOMAIN = dh.Domain((0, 0, 22, 33), (22, 33))


class FixedDraws:
    """Draws that are known as a whole: flat, in the strategy's own order."""

    def __init__(self, strategy: dh.Strategy, whole: np.ndarray) -> None:
        self.arrays = {(number, 0): whole[group.members] for number, group in enumerate(strategy.groups)}
        if isinstance(strategy, Flow):
            # The tiling has x first: `part` says of which direction draws are.
            _, (east, north) = strategy.split(whole)
            kinds = {STRAIGHT: (east.straight, north.straight.T), DIAGONAL: (east.rising, east.falling)}
            kinds |= dict(zip(strategy.sums, zip(east.sums, north.sums, strict=True), strict=True))
            names = list(strategy.kinds)
            self.arrays |= {(names.index(name), part): kinds[name][part] for name in kinds for part in (0, 1)}

    def __call__(self, group: int, part: int, shape: tuple[int, ...], rows: slice) -> np.ndarray:
        return self.arrays[group, part].reshape(shape)[rows].copy()


def flow(block: int | tuple[int, int], widths: tuple[int, ...], **more: object) -> Flow:
    return Flow(DOMAIN, block, widths, None, **more)


#: Strategies, and sides of their tiles.
EXAMPLES: dict[str, tuple[Callable[[], dh.Strategy], tuple[int, int]]] = {
    "identity": (lambda: Identity(DOMAIN), (8, 8)),
    "flow": (lambda: flow(1, (4, 12)), (7, 10)),
    "flow without sums, of hubs neither": (lambda: flow((3, 2), (), hubs=3), (6, 12)),
    "flow in blocks, with arrivals and centred sums": (
        lambda: flow((3, 2), (3,), arrivals="boundary", centred=True),
        (6, 6),
    ),
    "flow with hubs and strips": (lambda: flow(1, (5,), hubs=3, hub_widths=(2,), hub_strips=True), (8, 11)),
    "hierarchical": (lambda: Hierarchical(DOMAIN, 2, (1, 2, 1, 3, 1, 1, 2)), (4, 4)),
    "hierarchical with one tile": (lambda: Hierarchical(DOMAIN, 3), (81, 81)),
    "tents": (lambda: Tents(DOMAIN, (3, 5), 3, (1, 2)), (4, 6)),
    "tents that are wider than tiles": (lambda: Tents(DOMAIN, (9, 4), 2), (4, 3)),
    "flow with two levels of hubs, in blocks": (lambda: flow((2, 1), (2,), hubs=1, hub_widths=(2, 4)), (4, 32)),
}


def with_side(strategy: dh.Strategy, side: tuple[int, int]) -> Tiling:
    if isinstance(strategy, Hierarchical):  # tiles are blocks of a level
        with mock.patch("deltahist.strategies.tiles.SIDE", side[0]):
            tiling = strategy.tiling()
        assert tiling.side == side
        return tiling
    usual = strategy.tiling()
    return type(usual)(strategy, usual.layers, side)


@pytest.fixture(params=EXAMPLES)
def tiling(request: pytest.FixtureRequest) -> Tiling:
    make, side = EXAMPLES[request.param]
    return with_side(make(), side)


def random_tiling(rng: np.random.Generator) -> Tiling:
    """A strategy on at most 30 × 30 cells, in tiles of at most five blocks a side."""
    while True:
        shape = tuple(rng.integers(1, 31, 2).tolist())
        domain = dh.Domain((0, 0, *shape), shape)
        kind = rng.integers(4)
        others = ("Hierarchical", "Tents")
        strategy = random_flow(rng, domain) if kind < 2 else STRATEGIES[others[kind - 2]](rng, domain)
        if isinstance(strategy, Hierarchical):
            return with_side(strategy, (int(rng.choice(strategy.widths)),) * 2)
        if strategy is not None:
            step = strategy.tiling().layers[-1].step
            return with_side(strategy, tuple(s * int(rng.integers(1, 6)) for s in step))


def measure_in_tiles(tiling: Tiling, counts: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values of the whole strategy, and how many tiles hold each, the top being one, from slabs alone."""
    values, times = np.zeros((2, tiling.strategy.shape[0]), dtype=np.int64)
    draws = FixedDraws(tiling.strategy, noise)
    top = tiling.noise_of_top(draws)
    for slab, entering in enumerate(tiling.noise(draws)):
        part = counts[tiling.cells((slab, 0))[0]]
        top = top + tiling.measure_top(slab, part)
        exact = tiling.measure(slab, part)
        noisy = [own + added for own, added in zip(exact, entering, strict=True)]
        for number, each in enumerate(tiling.cut(slab, noisy)):
            values[tiling.rows((slab, number))] = each
            times[tiling.rows((slab, number))] += 1
    values[tiling.top] = top
    times[tiling.top] += 1
    return values, times


def estimate_in_tiles(tiling: Tiling, found: dh.decode.Decoder, values: np.ndarray, total: int | None) -> np.ndarray:
    tiles = [(i, j) for i in range(tiling.shape[0]) for j in range(tiling.shape[1])]
    parts = {tile: tiling.split(tile, values[tiling.rows(tile)]) for tile in tiles}
    sums = np.array([found.tile_summary(tiling, tile, parts[tile]) for tile in tiles]).reshape(*tiling.shape, -1)
    settled = found.settle_tiles(tiling, values[tiling.top], sums, total)
    cells = np.zeros(tiling.domain.shape)
    for tile in tiles:
        cells[tiling.cells(tile)] = found.tile_cells(tiling, tile, parts[tile], settled)
    return cells


def check_whole(tiling: Tiling, rng: np.random.Generator) -> None:
    """Look whether tiles are the whole map: every number published, and estimates with and without a total."""
    strategy = tiling.strategy
    counts, noise = rng.poisson(3, strategy.domain.shape), rng.integers(-400, 400, strategy.draws)
    values, times = measure_in_tiles(tiling, counts, noise)
    assert (times == 1).all()
    assert np.array_equal(values, strategy.measure(counts) + strategy.scatter(noise))
    # Scales of two points or more: a draw of one counts `unit` points.
    laws = [Laplace(int(rng.integers(2, 9)) / group.unit) for group in strategy.groups]
    for total in (None, int(counts.sum()) + 100):
        found = decoder(strategy, laws, total_known=total is not None)
        cells = estimate_in_tiles(tiling, found, values, total)
        np.testing.assert_allclose(cells, found.estimate(values, total), rtol=1e-9, atol=1e-7)


def test_tiles_are_the_whole_map(tiling: Tiling) -> None:
    check_whole(tiling, np.random.default_rng(1))


@given(seed=st.integers(0, 2**32 - 1))
def test_tiles_of_any_side_are_the_whole_map(seed: int) -> None:
    rng = np.random.default_rng(seed)
    check_whole(random_tiling(rng), rng)


def test_a_neighbour_publishes_the_same_tiles_with_draws_that_differ_by_its_change() -> None:
    """By brute force: A c + R(η) = A (c + E_e) + R(η + U_e) in tiles, for all edges and both signs."""
    rng = np.random.default_rng(2)
    domain = dh.Domain((0, 0, 4, 5), (4, 5))
    for sources, strategy, side in (
        (None, Identity(domain), (2, 3)),
        (None, Flow(domain, 1, (2, 4)), (2, 2)),
        ("boundary", Flow(domain, (2, 1), (3,), None, "boundary", centred=True), (2, 4)),
        ("boundary", Flow(domain, 1, (3,), None, None, 3, (2,)), (1, 3)),
        ("boundary", Hierarchical(domain, 2), (2, 2)),
        ("boundary", Tents(domain, 2), (2, 3)),
    ):
        near = quiet(domain, 1.5, sources)
        tiling = with_side(strategy, side)
        counts, noise = rng.poisson(5, domain.shape), rng.integers(-400, 400, strategy.draws)
        published, _ = measure_in_tiles(tiling, counts, noise)
        edges = zip(near.incidence().toarray().T, strategy.changes(near).toarray().T, strict=True)
        for moved, change in edges:
            for sign in (1, -1):
                other, _ = measure_in_tiles(tiling, counts + sign * moved.reshape(domain.shape), noise - sign * change)
                assert np.array_equal(other, published), strategy.describe()


def test_more_hubs_than_tiles_can_keep_are_refused() -> None:
    with mock.patch("deltahist.strategies.flow.tiling._MOST_HUBS", 50):
        assert flow(1, (), hubs=3).tiling().shape == flow(1, (), hubs=5, hub_widths=(2,)).tiling().shape == (1, 1)
        with pytest.raises(dh.InputError, match="the flow has 88 hubs with sums, and tiles keep at most 50"):
            flow(1, (), hubs=3, hub_widths=(2,)).tiling()


def test_strategies_that_need_all_cells_at_once_say_so() -> None:
    with pytest.raises(dh.InputError, match="Wavelet needs all cells at once"):
        dh.strategies.Wavelet(DOMAIN).tiling()
    with pytest.raises(dh.InputError, match="one dimension"):
        Identity(dh.Domain((0, 9), (9,))).tiling()
    with pytest.raises(dh.InputError, match=r"side is \(4, 4\): it must be a multiple"):
        with_side(flow(3, ()), (4, 4))
