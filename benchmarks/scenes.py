"""Artificial input files for benchmarks: a release, boxes, regions and points."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import deltahist as dh

BOUNDS = (580_000, 4_500_000, 630_000, 4_550_000)
CRS = "EPSG:32618"
BOXES, FEW, REGIONS, POINTS = 10_000, 1_000, 50, 140_000
#: Numbers of points in the Parquet files, by name.
PARQUET = {"10⁷": 10**7, "10⁸": 10**8}
#: Points generated at a time.
CHUNK = 1_000_000


def write_city(folder: Path) -> None:
    """Write a release, boxes in metres and in degrees, some of the boxes in degrees, regions and points."""
    import geopandas as gpd
    import pyproj
    import shapely

    rng = np.random.default_rng(1)
    west, south, east, north = BOUNDS
    domain = dh.Domain(BOUNDS, (1000, 1000), CRS)
    counts = dh.count(west + (east - west) * rng.beta(2, 2, (10**6, 2)) + (0, south - west), domain)
    dh.publish(counts, dh.Neighbourhood(domain, domain.cell[0]), epsilon=1).save(folder / "release.parquet")
    low = rng.uniform((west + 1_000, south + 1_000), (east - 6_000, north - 6_000), (BOXES, 2))
    boxes = np.hstack([low, low + rng.uniform(100, 5_000, (BOXES, 2))])
    lon_lat = pyproj.Transformer.from_crs(CRS, 4326, always_xy=True).transform
    degrees = np.column_stack([*lon_lat(*boxes[:, :2].T), *lon_lat(*boxes[:, 2:].T)])
    for name, corners in (("metres", boxes), ("degrees", degrees), ("few", degrees[:FEW])):
        np.savetxt(folder / f"{name}.csv", corners, "%.8f", ",", header="west,south,east,north", comments="")
    sites = shapely.multipoints(rng.uniform((west, south), (east, north), (REGIONS, 2)))
    zones = shapely.get_parts(shapely.voronoi_polygons(sites, extend_to=shapely.box(*BOUNDS)))
    zones = shapely.intersection(zones, shapely.box(*BOUNDS))
    names = [f"zone {number}" for number in range(len(zones))]
    gpd.GeoDataFrame({"name": names}, geometry=zones, crs=CRS).to_file(folder / "zones.gpkg")
    points = rng.normal(((west + east) / 2, (south + north) / 2), 8_000, (POINTS, 2))
    np.savetxt(folder / "points.csv", points, "%.2f", ",", header="x,y", comments="")


def write_points(folder: Path, number: int) -> None:
    """Write points of the unit square as two columns of floats."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    columns = pa.schema({"x": pa.float64(), "y": pa.float64()})
    with pq.ParquetWriter(folder / f"{number}.parquet", columns) as file:
        for start in range(0, number, CHUNK):
            some = min(CHUNK, number - start)
            file.write_table(pa.table({name: rng.normal(0.5, 0.15, some).clip(0, 0.999999) for name in "xy"}))
