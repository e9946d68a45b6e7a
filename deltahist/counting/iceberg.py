"""A version of an Iceberg table, as `pyiceberg` tells it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.counting.arrays import CHUNK, Reading
from deltahist.counting.lakes import LakeFile, LakeTable, Location, missing, take, told
from deltahist.counting.parts import list_files, unchanged
from deltahist.counting.tables import Input, open_parquet, readable
from deltahist.errors import InputError

_METADATA = ".metadata.json"
#: Rows for each byte of a file from which on they are no ordinary rows.
_ROWS_PER_BYTE = 64


def is_metadata(path: Path) -> bool:
    """Return whether a path names the metadata of a version of an Iceberg table.

    >>> is_metadata(Path("visits/metadata/v3.metadata.json")), is_metadata(Path("visits/a.json"))
    (True, False)
    """
    return path.name.endswith(_METADATA)


def is_version(way: str) -> bool:
    return way.startswith("metadata/") and is_metadata(Path(way))


def _newest(place: Location) -> str:
    """Return the way of the metadata of the newest version: as named, or as the table's hint says."""
    versions = sorted(way for way in place.found if is_version(way))
    if place.metadata is not None:
        if place.metadata not in place.found:
            raise InputError(f"input '{place.name}/{place.metadata}' does not exist")
        return place.metadata
    hint = place.found.get("metadata/version-hint.text")
    if hint is None:
        if len(versions) == 1:
            return versions[0]
        raise InputError(
            f"input {place.name!r} is a table of Iceberg of {len(versions)} versions, and only its catalog knows which "
            f"of them holds: name its metadata, such as '{place.name}/{versions[-1]}'"
        )
    said = _content(hint).decode(errors="replace").strip()

    def of(version: str) -> str | None:
        ways = (f"metadata/{version}{gz}{_METADATA}" for gz in ("", ".gz"))
        return next((way for way in ways if way in place.found), None)

    if not said.isdecimal() or not said.isascii():
        found = of(said.removesuffix(_METADATA))
    else:
        # The hint is written after the version, and may be behind.
        number = int(said)
        while of(f"v{number + 1}") is not None:
            number += 1
        found = of(f"v{number}")
    if found is None:
        raise InputError(f"input {hint.name!r} names a version whose metadata are missing: name another one's")
    return found


def _content(source: Input) -> bytes:
    """Return the bytes of a small file."""
    with unchanged(source), source.on_disk() as path:
        return path.read_bytes()


class _Files:
    """The files of an Iceberg table as `pyiceberg` opens them, wherever their folder is now."""

    def __init__(self, place: Location, root: str) -> None:
        self._place, self._root = place, root.rstrip("/") + "/"

    def way(self, location: str) -> str:
        """Return the way of a file from the table's folder."""
        way = location.removeprefix(self._root)
        if way == location or ".." in PurePosixPath(way).parts:
            raise InputError(
                f"input {self._place.name!r} is a table of Iceberg with files outside its folder: {location!r} is not "
                f"below {self._root!r}; write out its rows as a table of its own"
            )
        return way

    def new_input(self, location: str) -> _File:
        return _File(self._place, self.way(location), location)


class _File:
    """A file of an Iceberg table."""

    def __init__(self, place: Location, way: str, location: str) -> None:
        self._place, self._way, self.location = place, way, location

    def open(self, seekable: bool = True) -> io.BytesIO:
        source = self._place.found.get(self._way)
        if source is None:
            raise InputError(
                f"part {f'{self._place.name}/{self._way}'!r} is missing, though the table's metadata name it: was the "
                "version expired? take a newer one"
            )
        return io.BytesIO(_content(source))


def find_iceberg(place: Location) -> LakeTable:
    """Return a version of an Iceberg table (iceberg.apache.org/spec)."""
    name = place.name
    import pyarrow as pa

    try:
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.serializers import FromInputFile
        from pyiceberg.table import DataScan
        from pyiceberg.transforms import IdentityTransform
    except ImportError:
        raise missing("pyiceberg", "Iceberg", name) from None

    way = _newest(place)
    version = PurePosixPath(way).name
    found: Any = _File(place, way, way)
    metadata = told(place, "Iceberg", lambda: FromInputFile.table_metadata(found))
    # Files of a version are written before it: all are there by now.
    place = place._replace(found=list_files(place.path)[1])
    files: Any = _Files(place, metadata.location)
    tasks = told(place, "Iceberg", lambda: list(DataScan(metadata, files).plan_files()))
    columns = metadata.schema()
    schema = told(place, "Iceberg", lambda: schema_to_pyarrow(columns, include_field_ids=False))
    kept = _iceberg_kept(place, tasks, files, version)
    by_number = {each.field_id: schema.field(each.name) for each in columns.fields}
    parts = {}
    for task in tasks:
        file = task.file
        way = files.way(file.file_path)
        if file.file_format.name != "PARQUET" or file.key_metadata is not None:
            what = "encrypted" if file.key_metadata is not None else f"of format {file.file_format.name}"
            raise InputError(f"part {f'{name}/{way}'!r} is {what}: it must be Parquet that anyone can read")
        absent = {
            by_number[each.source_id].name: pa.scalar(value, by_number[each.source_id].type)
            for each, value in zip(metadata.specs()[file.spec_id].fields, file.partition, strict=True)
            if isinstance(each.transform, IdentityTransform) and each.source_id in by_number
        }
        part = take(place, way, file.file_size_in_bytes, version)
        if way in parts:
            raise InputError(f"part {part.name!r} is in {version} twice: its rows would count twice")
        parts[way] = LakeFile(part, file.record_count, absent=absent, kept=kept.get(file.file_path))
    mapping = metadata.name_mapping()
    numbers = {} if mapping is None else {n: each.field_id for each in mapping for n in each.names if each.field_id}
    added = {each.name for each in columns.fields if each.initial_default is not None}
    return LakeTable(
        name, schema, tuple(parts[way] for way in sorted(parts)), {each.name: each.field_id for each in columns.fields},
        numbers, dict.fromkeys(added, "it was added with a value for older rows, which is not known here"),
    )  # fmt: skip


def _iceberg_kept(place: Location, tasks: list[Any], files: _Files, version: str) -> dict[str, Any]:
    """Return of the files of which rows were deleted, by their locations, which rows were not."""
    import pyarrow as pa

    rows = {task.file.file_path: task.file.record_count for task in tasks}
    sizes = {task.file.file_path: task.file.file_size_in_bytes for task in tasks}
    aims: dict[str, tuple[Any, set[str]]] = {}
    for task in tasks:
        for each in task.delete_files:
            aims.setdefault(each.file_path, (each, set()))[1].add(task.file.file_path)
    kept: dict[str, NDArray[np.bool_]] = {}
    for delete, ways in aims.values():
        source = take(place, files.way(delete.file_path), delete.file_size_in_bytes, version)
        for location, positions in _deleted(delete, source):
            if location not in ways:
                continue
            if rows[location] > _ROWS_PER_BYTE * sizes[location]:
                raise InputError(f"input {place.name!r} states {rows[location]:,} rows of {location!r}: it is damaged")
            if location not in kept:
                kept[location] = np.ones(rows[location], dtype=bool)
            if len(positions) and not 0 <= positions.min() <= positions.max() < rows[location]:
                raise InputError(f"part {source.name!r} deletes rows that {location!r} does not have: it is damaged")
            kept[location][positions] = False
    return {location: pa.array(mask) for location, mask in kept.items()}


def _deleted(delete: Any, source: Input) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield files of which rows were deleted, by their locations, and the positions of these rows."""
    import pyarrow.compute as pc
    from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
    from pyiceberg.table.puffin import PuffinFile

    kind = delete.file_format.name
    if kind == "PUFFIN":
        with readable(source.name):
            for vector in deletion_vectors_from_puffin_file(PuffinFile(_content(source))):
                yield vector.referenced_data_file, np.asarray(vector.to_vector().to_numpy(), dtype=np.int64)
        return
    if kind != "PARQUET":
        raise InputError(f"part {source.name!r} has deleted rows in {kind}: it must be Parquet or Puffin")
    with unchanged(source):
        source.check_unchanged()
        table = open_parquet(source, Reading())
        if not {"file_path", "pos"} <= set(table.names):
            raise InputError(f"part {source.name!r} has no columns file_path and pos of deleted rows: it is damaged")
        for columns, _ in table.read([table.names.index("file_path"), table.names.index("pos")], False, CHUNK):
            for location in pc.unique(columns[0]):
                chosen = columns[1].filter(pc.equal(columns[0], location))
                yield location.as_py(), chosen.to_numpy(zero_copy_only=False).astype(np.int64)
