"""Layers of geometries as batches of Arrow columns: GeoPackage, GeoJSON, FlatGeobuf, shapefiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deltahist.counts.inputs import Input, short
from deltahist.counts.tables import Request, Table
from deltahist.errors import InputError


def open_layer(source: Input, request: Request) -> Table:
    """A layer of a file that GDAL reads."""
    import pyogrio

    if source.path.suffix.lower() == ".shp":
        _check_length(source)
    try:
        layers = [str(name) for name, _ in pyogrio.list_layers(source.vsi)]
        if request.layer is None and len(layers) > 1:
            raise InputError(f"input {source.name!r} has layers {', '.join(layers)}: choose one with layer=")
        info = pyogrio.read_info(source.vsi, layer=request.layer)
    except InputError:
        raise
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, ValueError) as problem:
        hint = _hint(source)
        raise InputError(f"input {source.name!r} cannot be read: {short(problem)}{hint}") from None
    names = [str(f) for f in info["fields"]]

    def read(positions: list[int], geometry: bool, rows: int) -> Iterator[tuple[list[Any], int]]:
        wanted = [names[i] for i in positions]
        with pyogrio.open_arrow(
            source.vsi, layer=request.layer, columns=wanted, batch_size=rows, use_pyarrow=True
        ) as (meta, reader):
            wanted += [meta["geometry_name"] or "wkb_geometry"] if geometry else []
            for batch in reader:
                yield [batch.column(name) for name in wanted], 0

    known = info["features"] is not None and info["features"] >= 0
    rows = int(info["features"]) if known else None
    return Table(names, read, geometry=-1, crs=info["crs"], rows=rows)


def _check_length(source: Input) -> None:
    """Raise InputError if a shapefile is shorter than it says: its missing points would pass for rows without one."""
    with source.path.open("rb") as file:
        header = file.read(28)
    words = int.from_bytes(header[24:28], "big")
    if len(header) < 28 or 2 * words > source.path.stat().st_size:
        raise InputError(f"input {source.name!r} is shorter than it says: was it cut short?")


def _hint(source: Input) -> str:
    """What may be the cause where GDAL's own words do not say it."""
    suffix = source.path.suffix.lower()
    if suffix == ".shp":
        return " (its parts .shx and .dbf must lie beside it)"
    return " (one object per line? then format='jsonl')" if suffix == ".json" else ""
