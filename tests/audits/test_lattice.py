"""Raw coordinates: moves within δ become edges, clamping never lengthens them, far moves are chains of short ones."""

import math
from fractions import Fraction

import numpy as np
import pytest
import shapely
from examples import quiet

from deltahist.mechanisms.histogram import sensitivity
from deltahist.space.domain import Domain
from tests.audits.test_exact import NAMES, some_case

DOMAINS = [
    Domain((0, 1), (10,)),
    Domain((-0.3, 0.7), (7,)),
    Domain((0, 0, 1, 1), (10, 10)),
    Domain((500_000.1, 4_400_000.7, 500_900.1, 4_401_500.7), (9, 6)),
]


def moves(domain, length, rng, number=4000):
    """Raw moves of at most `length`: random ones, exact ones along the axes, many across the bounds."""
    low, high = np.array(domain.low), np.array(domain.high)
    start = low + (high - low) * rng.uniform(-0.3, 1.3, (number, domain.ndim))
    # half of the starts are on the edges of cells, where rounding would show
    grid = low + np.rint((start - low) / np.array(domain.cell)) * np.array(domain.cell)
    start[::2] = grid[::2]
    direction = rng.normal(size=start.shape)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    direction[::3] = np.eye(domain.ndim)[rng.integers(domain.ndim, size=len(direction[::3]))]
    reach = length * np.where(rng.random(number) < 0.5, 1.0, rng.random(number))
    return start, start + direction * reach[:, None]


@pytest.mark.parametrize("cells", [0.5, 1, 1.3, 2, 3])
def test_a_raw_move_within_delta_is_an_edge(cells):
    """δ less one lattice step is what is guaranteed; points beyond the bounds are clamped."""
    for domain in DOMAINS:
        near = quiet(domain, cells * min(domain.cell))
        edges = {tuple(edge) for edge in near.edges().tolist()}
        start, end = moves(domain, near.delta_ground - max(domain.step), np.random.default_rng(1))
        flat = [np.ravel_multi_index(domain.locate(points).T, domain.shape) for points in (start, end)]
        pairs = set(zip(np.minimum(*flat).tolist(), np.maximum(*flat).tolist(), strict=True))
        assert len(pairs) > domain.size
        assert all(u == v or (u, v) in edges for u, v in pairs)


def test_clamping_never_lengthens_a_move():
    for domain in DOMAINS:
        start, end = moves(domain, 5 * max(domain.cell), np.random.default_rng(2))
        low, top = np.zeros(domain.ndim), np.array(domain.shape) * np.array(domain.steps) - 1
        free = [np.floor((p - np.array(domain.low)) / np.array(domain.step) + 0.5) for p in (start, end)]
        clamped = [np.clip(p, low, top) for p in free]
        assert (np.abs(clamped[0] - clamped[1]) <= np.abs(free[0] - free[1])).all()
        assert (domain.lattice(start) >= 0).all()
        assert (domain.lattice(start) <= top).all()


@pytest.mark.parametrize("cells", [0.5, 1, 1.3, 2])
def test_a_point_that_leaves_the_bounds_comes_from_a_source_cell(cells):
    for domain in DOMAINS:
        near = quiet(domain, cells * min(domain.cell), "boundary")
        start, end = moves(domain, near.delta_ground - max(domain.step), np.random.default_rng(3))
        low, high = np.array(domain.low), np.array(domain.high)
        inside = [((p >= low) & (p < high)).all(axis=1) for p in (start, end)]
        for here, there, points in ((inside[0], inside[1], start), (inside[1], inside[0], end)):
            leaving = points[here & ~there]
            assert len(leaving) > 10
            assert near.source_cells[tuple(domain.locate(leaving).T)].all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("norm", [1, 2])
def test_a_move_over_r_costs_at_most_the_moves_of_its_path(name, norm):
    for seed in range(20):
        strategy, near, _, _ = some_case(name, seed)
        own = sensitivity(strategy, quiet(near.domain, near.delta), norm=norm)
        for times in (1, 1.5, 2, 2.75, 4):
            far = sensitivity(strategy, near.moves_within(times * near.delta_ground), norm=norm)
            most, found = (own, far) if norm == 1 else (own.squared, far.squared)
            assert found <= math.ceil(times) ** norm * most


@pytest.mark.parametrize("name", NAMES)
def test_anything_within_the_diameter_is_any_move_at_all(name):
    for seed in range(20):
        strategy, near, _, _ = some_case(name, seed)
        columns = strategy.matrix().toarray().astype(object)
        shares = np.empty(len(columns), dtype=object)
        for group in strategy.groups:
            shares[group.members] = group.share
        worst = max(
            sum(abs(columns[:, u] - columns[:, v]) * shares, Fraction(0))
            for u in range(near.domain.size)
            for v in range(near.domain.size)
        )
        assert sensitivity(strategy, near.moves_within(near.diameter)) == worst


def _source(kind, rng, low, high, ndim):
    """A geometry inside, across or outside the bounds."""
    span = np.array(high) - np.array(low)
    places = np.zeros((6, 2))
    places[:, :ndim] = low + span * rng.uniform(-0.8, 1.8, (6, ndim))
    if kind == "far":
        places[:, :ndim] += span * rng.integers(-30, 31, ndim)
    shapes = {
        "point": shapely.Point(places[0]),
        "points": shapely.MultiPoint(places),
        "road": shapely.LineString(places[:4]),
        "across": shapely.LineString([places[0] - 40 * span.max(), places[1] + 40 * span.max()]),
        "area": shapely.Polygon(places[:3]) if ndim == 2 else shapely.LineString(places[:2]),
        "ring": shapely.Point(places[0]).buffer(span.max()).exterior,
        "far": shapely.MultiPoint(places),
    }
    return shapes[kind]


def _some_of(geometry, rng, number):
    """Places of a geometry, its vertices among them."""
    vertices = shapely.get_coordinates(geometry)
    out = vertices[rng.integers(len(vertices), size=number)]
    lines = shapely.boundary(geometry) if geometry.geom_type == "Polygon" else geometry
    if lines.length:
        on_line = shapely.line_interpolate_point(lines, rng.uniform(0, lines.length, number // 2))
        out[: number // 2] = shapely.get_coordinates(on_line)
    return out


@pytest.mark.parametrize("kind", ["point", "points", "road", "across", "area", "ring", "far"])
def test_no_raw_arrival_near_a_source_geometry_is_unpriced(kind):
    """Some 300,000 raw points, inside and outside of the bounds, each within δ less two lattice steps of a source.

    A point outside is counted in the cell at the rim that is nearest to it, which is then the one that must be priced.
    """
    rng = np.random.default_rng(41)
    number, outside, cells = 600, 0, 0
    for _ in range(80):
        ndim = int(rng.integers(1, 3))
        shape = tuple(rng.integers(1, 12, ndim).tolist())
        low = rng.uniform(-3, 3, ndim)
        high = low + np.array(shape) * rng.uniform(0.2, 2) * rng.choice([1, 0.5, 1.7], ndim)
        domain = Domain((*low, *high), shape)
        delta = float(rng.uniform(0.1, 3) * min(domain.cell))
        geometry = _source(kind, rng, domain.low, domain.high, ndim)
        near = quiet(domain, delta, geometry)
        reach = delta - 2 * max(domain.step)
        around = rng.normal(size=(number, ndim))
        around *= (reach * rng.choice([1.0, rng.random()], number) / np.linalg.norm(around, axis=1))[:, None]
        points = _some_of(geometry, rng, number)[:, :ndim] + around
        outside += int(((points < domain.low) | (points > domain.high)).any(axis=1).sum())
        cells += int(near.source_cells.sum())
        assert near.source_cells[tuple(domain.locate(points).T)].all(), (domain, delta, geometry.wkt)
    assert outside > 0.2 * 80 * number
    assert cells > 80
