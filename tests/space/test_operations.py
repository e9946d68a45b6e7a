"""One coordinate operation for a whole domain, without a grid of corrections."""

from types import SimpleNamespace

import geopandas as gpd
import numpy as np
import pandas as pd
import pyproj
import pytest
import shapely

import deltahist as dh
from deltahist.space.crs import Operation

#: ED50 to ETRS89 near the end of one operation's area at 10.38° E, where another one lies 120 m away.
ED50, GERMANY = "EPSG:4230", "EPSG:25832"
BOUNDS = (580_000, 5_300_000, 620_000, 5_360_000)
#: A hand's breadth apart.
PAIR = np.array([[10.379999, 48.3], [10.380001, 48.3]])


def germany(cell="60m"):
    return dh.Domain.from_cell(BOUNDS, cell, GERMANY)


def as_file(kind, path):
    frame = pd.DataFrame(PAIR, columns=["lon", "lat"])
    if kind == "csv":
        frame.to_csv(path / "p.csv", index=False)
        return dh.count_file(path / "p.csv", germany(), x="lon", y="lat", crs=ED50).counts
    points = gpd.GeoDataFrame(geometry=shapely.points(PAIR), crs=ED50)
    if kind == "frame":
        return dh.count(points, germany())
    points.to_file(path / "p.gpkg")
    return dh.count_file(path / "p.gpkg", germany()).counts


@pytest.mark.parametrize("kind", ["csv", "gpkg", "frame"])
def test_near_points_are_counted_in_near_cells_whatever_the_datum(kind, tmp_path):
    """One operation for all, where a library that chooses for each point tears them apart."""
    x, y = pyproj.Transformer.from_crs(ED50, GERMANY, always_xy=True).transform(*PAIR.T)
    assert np.hypot(np.diff(x), np.diff(y)) > 100
    counts = as_file(kind, tmp_path)
    assert (np.ptp(np.argwhere(np.asarray(counts)), axis=0) <= 1).all()
    assert "ED50 to ETRS89" in counts.preprocessing.projection


@pytest.mark.parametrize(
    ("crs", "bounds", "source"),
    [
        ("EPSG:32618", (560_000, 4_480_000, 610_000, 4_530_000), "EPSG:4267"),
        (GERMANY, BOUNDS, ED50),
        ("EPSG:3035", (2.5e6, 1.4e6, 6.5e6, 5.4e6), "EPSG:4326"),
        ("EPSG:2263", (900_000, 120_000, 1_070_000, 280_000), "EPSG:4326"),
    ],
)
def test_operations_do_not_tear(crs, bounds, source):
    """Steps of a ten-thousandth of the map along both directions are about as long everywhere."""
    domain = dh.Domain.from_cell(bounds, 0.01 * (bounds[2] - bounds[0]), crs)
    operation = Operation.onto(domain, source)
    for lattice in (np.meshgrid(np.linspace(0, 1, 10_001), [0.1, 0.5, 0.9], indexing="ij"),):
        x, y = (lo + share * (hi - lo) for lo, hi, share in zip(domain.low, domain.high, lattice, strict=True))
        lon, lat = operation.back(x, y)
        steps = np.hypot(*(np.diff(np.asarray(v), axis=0) for v in operation(lon, lat)))
        assert steps.max() < 1.01 * steps.min()
    assert Operation.onto(domain, crs) is None


def test_a_grid_of_corrections_is_refused(monkeypatch):
    """Coordinates jump at its edges."""
    found = SimpleNamespace(definition="proj=pipeline step proj=hgridshift grids=t.gsb", description="with a grid")
    monkeypatch.setattr("pyproj.transformer.TransformerGroup", lambda *_, **__: SimpleNamespace(transformers=[found]))
    with pytest.raises(dh.InputError, match="grid"):
        Operation.between(pyproj.CRS(ED50), pyproj.CRS(GERMANY), None)
