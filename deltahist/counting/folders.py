"""Folders and addresses as one table: Parquet files, or a table of Delta or Iceberg."""

from __future__ import annotations

from pathlib import Path

from deltahist._objects import is_address
from deltahist.counting.arrays import Reading
from deltahist.counting.delta import find_delta
from deltahist.counting.iceberg import find_iceberg, is_metadata, is_version
from deltahist.counting.lakes import LakeTable, Location, open_lake
from deltahist.counting.parts import PartedTable, find_parts, list_files, open_parts
from deltahist.counting.tables import OpenedTable
from deltahist.errors import InputError


def open_folder(path: Path, reading: Reading) -> tuple[PartedTable | LakeTable, OpenedTable]:
    """Open a folder, an address in object storage, or a version of an Iceberg table by its metadata.

    Raises InputError as `list_files`, `find_parts` and `open_parts` do; if the folder is a table of both Delta and
    Iceberg, its metadata cannot be read, a file of the version is gone or another one, or something in it is not known.
    """
    if reading.format not in (None, "parquet"):
        raise InputError(f"format is {reading.format!r}, but the input is a folder or an address: these hold Parquet")
    metadata = None
    if is_metadata(path):
        path = path if is_address(path) else path.absolute()
        metadata, path = f"{path.parent.name}/{path.name}", path.parent.parent
    place = Location(path, *list_files(path), metadata)
    delta = metadata is None and any(way.startswith("_delta_log/") for way in place.found)
    iceberg = metadata is not None or any(is_version(way) for way in place.found)
    if delta and iceberg:
        raise InputError(
            f"input {place.name!r} is a table of both Delta and Iceberg, and which of them is newer is not known: name "
            "the metadata of a version, metadata/….metadata.json, to take that of Iceberg"
        )
    if not delta and not iceberg:
        parts = find_parts(place.name, place.found, reading.format)
        return parts, open_parts(parts, reading)
    lake = find_delta(place) if delta else find_iceberg(place)
    return lake, open_lake(lake, reading)
