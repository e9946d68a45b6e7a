"""Grids: cells between multiples of a step, in whole numbers; INSPIRE's names."""

from fractions import Fraction

import geopandas as gpd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

import deltahist as dh
from deltahist.space.crs import scales
from deltahist.space.domain import cell_codes

EUROPE = "EPSG:3035"
BOUNDS = (4_337_400, 2_689_100, 4_339_200, 2_690_500)

sides = st.one_of(st.integers(1, 100_000).map(float), st.sampled_from([0.5, 0.25, 2.5, 1 / 1024]))


@given(sides, st.floats(-1e7, 1e7), st.floats(-1e7, 1e7), st.floats(1, 1e6), st.floats(1, 1e6))
def test_bounds_are_multiples_of_the_step_and_no_further_out_than_needed(side, west, south, width, height):
    box = (west, south, west + width, south + height)
    domain, step = dh.Domain.on_grid(box, side), Fraction(side)
    found, shape = domain.bounds, domain.shape
    for lo, hi, low, high, n in zip(box[:2], box[2:], found[:2], found[2:], shape, strict=True):
        assert Fraction(low) % step == 0
        assert Fraction(high) - Fraction(low) == n * step
        assert low <= lo < low + side
        assert high - side < hi <= high
    assert domain.grid == side
    assert dh.Domain((500, 200, 1500, 950), (4, 3)).grid is None  # 200 is no multiple of 250


@given(st.integers(-300, 300), st.integers(-300, 300), st.integers(1, 40), st.integers(1, 40))
def test_all_edges_are_whole_and_points_on_them_go_up(column, row, width, height):
    domain = dh.Domain.on_grid((column * 250, row * 250, (column + width) * 250, (row + height) * 250), 250)
    assert domain.shape == (width, height)
    assert domain.grid == 250
    assert domain.cell == (250, 250)
    for axis, first in enumerate((column, row)):
        edges = domain.edges(axis)
        assert edges.tolist() == [250 * (first + i) for i in range(domain.shape[axis] + 1)]
        assert domain.locate(np.column_stack([edges[:-1]] * 2))[:, axis].tolist() == list(
            range(domain.shape[axis])
        )


def test_ground_metres_are_in_delta_alone():
    domain = dh.Domain.on_grid((4_337_400, 2_689_100, 4_341_000, 2_693_000.5), "1km", EUROPE)
    assert (domain.bounds, domain.shape) == ((4_337_000, 2_689_000, 4_341_000, 2_694_000), (4, 5))
    assert domain.scale == scales(domain)[1] > 1
    with pytest.warns(dh.DeltaHistWarning, match="moves then reach 2 cells; a delta of 99") as caught:
        near = dh.Neighbourhood(domain, "1km")
    assert near.delta_cells[0] == pytest.approx(domain.scale, abs=1e-6)
    assert near.reach[0] == 2
    advice = float(str(caught[0].message).split("a delta of ")[1].split()[0])
    assert dh.Neighbourhood(domain, advice).reach[0] == 1


def test_a_grid_of_a_foot_is_a_foot_of_the_map():
    domain = dh.Domain.on_grid((900_100, 120_000, 1_070_000, 280_000), 500, "EPSG:2263")
    assert domain.bounds == (900_000, 120_000, 1_070_000, 280_000)
    assert domain.size_of_cells == "500 × 500 US survey foot of the map"
    with pytest.raises(dh.InputError, match=r"step is 328\.08.*halves"):
        dh.Domain.on_grid((900_000, 120_000, 1_070_000, 280_000), "100m", "EPSG:2263")


def test_steps_that_floats_do_not_hold_are_refused():
    with pytest.raises(dh.InputError, match=r"step is 0\.1: its multiples must be exact"):
        dh.Domain.on_grid((0, 0, 1.2, 1), 0.1)
    with pytest.raises(dh.InputError, match="no CRS"):
        dh.Domain.on_grid((0, 0, 1, 1), "1m")
    with pytest.raises(dh.InputError, match="step is -1"):
        dh.Domain.on_grid((0, 0, 1, 1), -1)
    assert dh.Domain.on_grid((0.6, 3.2), 0.5).bounds == (0.5, 3.5)


@pytest.mark.parametrize(
    ("step", "first", "last"),
    [
        ("1km", "1kmN2689E4337", "1kmN2690E4339"),
        ("100m", "100mN26891E43374", "100mN26904E43391"),
        ("250m", "250mN268900E433725", "250mN269025E433900"),
        ("25m", "25mN2689100E4337400", "25mN2690475E4339175"),
        ("2.5km", "2.5kmN26875E43375", "2.5kmN26900E43375"),
        ("10km", "10kmN268E433", "10kmN269E433"),
    ],
)
def test_names_are_those_of_inspire(step, first, last):
    bounds = BOUNDS if step != "2.5km" else (4_337_500, *BOUNDS[1:])
    codes = cell_codes(dh.Domain.on_grid(bounds, step, EUROPE))
    assert codes[0, 0] == first
    assert codes[-1, -1] == last
    assert len(set(codes.ravel())) == codes.size


def test_a_saved_release_keeps_the_grid_and_exports_names(tmp_path):
    domain = dh.Domain.on_grid(BOUNDS, "1km", EUROPE)
    near = dh.Neighbourhood(domain, "900m")
    dh.publish(np.ones((3, 2), dtype=int), near, "identity", epsilon=1).save(tmp_path / "r.parquet")
    release = dh.load(tmp_path / "r.parquet")
    assert release.domain == domain
    assert release.domain.grid == 1000
    frame = release.to_geopandas()
    assert frame["cell"].tolist()[:3] == ["1kmN2689E4337", "1kmN2690E4337", "1kmN2689E4338"]
    assert frame.geometry[2].bounds == (4_338_000, 2_689_000, 4_339_000, 2_690_000)
    from deltahist.releases.export import export

    export(release, tmp_path / "cells.parquet")
    assert gpd.read_parquet(tmp_path / "cells.parquet")["cell"].tolist() == frame["cell"].tolist()
    export(release, tmp_path / "cells.csv")
    assert pd.read_csv(tmp_path / "cells.csv")["cell"].tolist() == frame["cell"].tolist()
    statement = release.statement()
    assert "3 × 2 cells of 1,000 × 1,000 m of the map, EPSG:3035, on the grid of their multiples" in statement
    assert "ground metres are in δ alone" in statement
