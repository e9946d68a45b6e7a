"""Domain: lattice, clamping, ground metres, refusals."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.space.grids import read_length


def test_a_coordinate_on_a_cells_edge_goes_up_even_where_floats_say_otherwise():
    domain = dh.Domain((0, 0, 1, 1), (10, 10))
    assert 0.3 / 0.1 < 3
    assert domain.locate([[0.3, 0.7], [0.1, 0.6]]).tolist() == [[3, 7], [1, 6]]


def test_points_outside_are_clamped():
    domain = dh.Domain((0, 0, 1, 2), (4, 4))
    assert domain.locate([[-5, 9], [1, 2], [0, 0]]).tolist() == [[0, 3], [3, 3], [0, 0]]


@given(
    st.lists(st.tuples(st.floats(-2, 3), st.floats(-2, 3)), min_size=1, max_size=20),
    st.integers(1, 40),
    st.integers(1, 40),
)
def test_flat_cells_are_those_of_the_lattice(points, nx, ny):
    domain = dh.Domain((0, 0, 1, 1), (nx, ny))
    array = np.array(points)
    flat = domain.flat_cells([array[:, 0], array[:, 1]])
    cells = domain.locate(array)
    assert np.array_equal(flat, cells[:, 0] * ny + cells[:, 1])
    assert np.array_equal(cells, domain.lattice(array) // np.array(domain.steps))


@given(st.floats(-1, 2), st.floats(-1, 2), st.floats(-1, 2), st.floats(-1, 2))
def test_clamping_never_lengthens_a_move(x, y, u, v):
    domain = dh.Domain((0, 0, 1, 1), (10, 10))
    a, b = domain.lattice([[x, y], [u, v]])
    raw = math.hypot(x - u, y - v) / domain.step[0]
    assert math.hypot(*(a - b)) <= raw + 2


def test_one_dimension():
    domain = dh.Domain((0, 4), (4,))
    assert domain.locate([0.5, 3.5, 9]).ravel().tolist() == [0, 3, 3]
    assert (domain.ndim, domain.size, domain.cell) == (1, 4, (1.0,))
    assert domain.edges(0).tolist() == [0, 1, 2, 3, 4]
    assert domain.centres(0).tolist() == [0.5, 1.5, 2.5, 3.5]


def test_lattice_steps_are_equal_on_both_axes_for_simple_ratios():
    assert dh.Domain((0, 0, 3, 2), (3, 4)).steps == (2_000_000, 1_000_000)
    odd = dh.Domain((0, 0, 1, math.pi), (10, 10))
    assert odd.step[0] == pytest.approx(odd.step[1], rel=1e-8)


@pytest.mark.parametrize(
    ("bounds", "cell", "shape", "high"),
    [
        ((0, 0, 1, 1), 0.25, (4, 4), (1, 1)),
        ((0, 0, 1, 0.45), 0.2, (5, 3), (1, 0.6)),
        ((2, 3), 0.3, (4,), (3.2,)),
    ],
)
def test_bounds_are_extended_to_whole_cells(bounds, cell, shape, high):
    domain = dh.Domain.from_cell(bounds, cell)
    assert domain.shape == shape
    assert domain.high == pytest.approx(high)


@pytest.mark.parametrize(
    ("crs", "bounds"),
    [
        ("EPSG:32618", (560000, 4480000, 610000, 4530000)),
        ("EPSG:3035", (4000000, 2800000, 4100000, 2900000)),
        ("EPSG:3857", (-8250000, 4950000, -8200000, 5000000)),
        ("EPSG:2263", (900000, 120000, 1070000, 280000)),
    ],
)
@pytest.mark.parametrize("times", [1, 2, 4])
def test_cells_and_delta_in_ground_metres_keep_their_ratio(crs, bounds, times):
    domain = dh.Domain.from_cell(bounds, "250m", crs)
    near = dh.Neighbourhood(domain, f"{250 * times}m")
    assert near.delta_cells == (times, times)
    assert near.reach[0] == times
    assert near.delta_ground == pytest.approx(250 * times)


def test_a_ground_metre_is_no_shorter_than_anywhere_on_the_map():
    import pyproj

    domain = dh.Domain.from_cell((560000, 4480000, 610000, 4530000), "250m", "EPSG:32618")
    back = pyproj.Transformer.from_crs("EPSG:32618", "EPSG:4326", always_xy=True)
    geod = pyproj.Geod(ellps="WGS84")
    rng = np.random.default_rng(1)
    start = rng.uniform(domain.low, domain.high, (500, 2))
    angle = rng.uniform(0, 2 * np.pi, 500)
    end = start + 1000 * np.column_stack([np.cos(angle), np.sin(angle)])
    ground = geod.inv(*back.transform(*start.T), *back.transform(*end.T))[2]
    # A kilometre of the map is at least as long on the ground as the domain's scale says.
    assert (ground * domain.scale >= 1000 * (1 - 1e-5)).all()


def test_feet_are_converted():
    feet = dh.Domain.from_cell((900000, 120000, 1070000, 280000), "250m", "EPSG:2263")
    assert feet.cell[0] == pytest.approx(250 / 0.3048, rel=1e-3)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"bounds": (1, 0, 0, 1), "shape": (2, 2)}, "west, south, east, north"),
        ({"bounds": (0, 0, 0, 1), "shape": (2, 2)}, "must be less than"),
        ({"bounds": (0, 0, math.nan, 1), "shape": (2, 2)}, "nan"),
        ({"bounds": (0, 0, math.inf, 1), "shape": (2, 2)}, "inf"),
        ({"bounds": (0, 1), "shape": (2, 2)}, "shape"),
        ({"bounds": (0, 1, 2), "shape": (2,)}, "bounds have 3"),
        ({"bounds": (0, 1), "shape": (0,)}, "at least 1"),
        ({"bounds": (0, 1), "shape": (2.5,)}, "2.5"),
        ({"bounds": (0, 1), "shape": (10**12,)}, "lattice"),
        ({"bounds": (-74, 40, -73, 41), "shape": (2, 2), "crs": "EPSG:4326"}, "from_degrees"),
        ({"bounds": (0, 0, 1, 1), "shape": (2, 2), "crs": "EPSG:nothing"}, "EPSG:nothing"),
        ({"bounds": (-2e7, -1e7, 2.003e7, 1e7), "shape": (2, 2), "crs": "EPSG:3857"}, "antimeridian"),
        ({"bounds": (0, 0, 1e9, 1e9), "shape": (2, 2), "crs": "EPSG:32618"}, "defined"),
        ({"bounds": (0, 1), "shape": (2,), "crs": "EPSG:32618"}, "2-D"),
    ],
)
def test_bad_domains_are_refused_by_name(parameters, words):
    with pytest.raises(dh.InputError, match=words) as caught:
        dh.Domain(**parameters)
    assert "\n" not in str(caught.value)


def test_metres_need_a_crs():
    with pytest.raises(dh.InputError, match="no CRS"):
        dh.Domain.from_cell((0, 0, 1, 1), "250m")


@pytest.mark.parametrize("text", ["m", "x250m", "250 miles"])
def test_lengths_are_numbers_with_or_without_a_unit(text):
    assert (read_length("250m"), read_length("2.5e2"), read_length(250)) == (250, 250, 250)
    with pytest.raises(dh.InputError, match=r"250m or 0\.5km"):
        read_length(text)


@pytest.mark.parametrize("points", [[[0, math.nan]], [[math.inf, 0]]])
def test_points_must_be_finite(points):
    with pytest.raises(dh.InputError, match="1 of 1 points"):
        dh.Domain((0, 0, 1, 1), (2, 2)).lattice(points)


def test_a_description_makes_the_domain_again():
    domain = dh.Domain.from_cell((560000, 4480000, 610000, 4530000), "250m", "EPSG:32618")
    assert dh.Domain(**domain.describe()) == domain


def test_coordinates_must_be_finer_than_the_lattice():
    with pytest.raises(dh.InputError, match="too short for floats"):
        dh.Domain((0, 1e-303), (10,))
    with pytest.raises(dh.InputError, match="are rounded by 256, more than a lattice step"):
        dh.Domain((2**60, 2**60 + 5000), (10,))
    assert dh.Domain((1.6e18, 1.7e18), (1000,)).size == 1000  # times in nanoseconds, cells of a day


@pytest.mark.parametrize("scale", [0.5, -3, 2])
def test_a_plane_has_no_scale(scale):
    with pytest.raises(dh.InputError, match="without a CRS"):
        dh.Domain((0, 8), (8,), scale=scale)
