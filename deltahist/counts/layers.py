"""Layers of geometries as batches of Arrow columns: GeoPackage, GeoJSON, FlatGeobuf, shapefiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deltahist._confined import Child, Unreadable
from deltahist.counts.inputs import Input
from deltahist.counts.tables import OpenedTable, TableRequest
from deltahist.errors import InputError


def open_layer(source: Input, request: TableRequest) -> OpenedTable:
    """A layer of a file that GDAL reads."""
    if source.path.suffix.lower() == ".shp":
        _check_length(source)
    try:
        child = Child("geo", source.path, member=source.member, layer=request.layer)
    except Unreadable as problem:
        raise InputError(f"input {source.name!r} cannot be read: {problem}{_hint(source)}") from None
    said = child.description
    if "names" not in said:
        layers = ", ".join(said["layers"])
        if request.layer is None:
            raise InputError(f"input {source.name!r} has layers {layers}: choose one with layer=")
        raise InputError(f"input {source.name!r} has layers {layers}, but no {request.layer!r}")
    names = said["names"]

    def read(positions: list[int], geometry: bool, rows: int) -> Iterator[tuple[list[Any], int]]:
        wanted = [names[i] for i in positions]
        for batch in child.batches(columns=wanted, geometry=geometry, rows=rows):
            yield batch.columns, 0

    return OpenedTable(names, read, geometry=-1, crs=said["crs"], rows=said["rows"])


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
