"""One coordinate operation for a whole domain, without a grid of corrections."""

import struct

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


# ------------------------------------------------------------------------------------- grids of corrections


def ntv2(path, grids):
    """A grid file with a constant shift of latitude (seconds) in each box W, S, E, N."""

    def record(name, value):
        head = name.ljust(8).encode()
        if isinstance(value, str):
            return head + value.ljust(8).encode()
        return head + (struct.pack("<i4x", value) if isinstance(value, int) else struct.pack("<d", value))

    axes = (
        ("MAJOR_F", 6377397.155),
        ("MINOR_F", 6356078.963),
        ("MAJOR_T", 6378137.0),
        ("MINOR_T", 6356752.314),
    )
    names = ("GS_TYPE", "SECONDS"), ("VERSION", "TEST"), ("SYSTEM_F", "A"), ("SYSTEM_T", "B"), *axes
    out = [record(*pair) for pair in (("NUM_OREC", 11), ("NUM_SREC", 11), ("NUM_FILE", len(grids)), *names)]
    spacing = 0.05
    for number, ((west, south, east, north), shift) in enumerate(grids):
        size = (round((north - south) / spacing) + 1) * (round((east - west) / spacing) + 1)
        sides = ("S_LAT", south), ("N_LAT", north), ("E_LONG", -east), ("W_LONG", -west)
        steps = ("LAT_INC", spacing), ("LONG_INC", spacing)
        head = [("SUB_NAME", f"G{number}"), ("PARENT", "NONE"), ("CREATED", "X"), ("UPDATED", "X")]
        head += [(key, float(value) * 3600) for key, value in (*sides, *steps)]
        out += [record(*pair) for pair in (*head, ("GS_COUNT", size))]
        out.append(np.tile(np.array([shift, 0, 0, 0], dtype="<f4"), (size, 1)).tobytes())
    path.write_bytes(b"".join(out) + b"END     " + bytes(8))
    return f"+proj=longlat +ellps=bessel +nadgrids={path} +type=crs"


def test_a_grid_of_corrections_is_refused(tmp_path):
    """Coordinates jump at its edges."""
    domain = dh.Domain.from_cell((545_000, 5_300_000, 600_000, 5_350_000), "250m", GERMANY)
    grids = [((9, 47, 10, 49), 1.0), ((10, 47, 11, 49), 2.0)]
    with pytest.raises(dh.InputError, match="correction grid"):
        Operation.onto(domain, ntv2(tmp_path / "t.gsb", grids))
