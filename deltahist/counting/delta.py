"""The newest version of a Delta table, as `deltalake` tells it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from deltahist._objects import is_address
from deltahist.counting.lakes import LakeFile, LakeTable, Location, missing, take, told
from deltahist.counting.parts import list_files
from deltahist.errors import InputError

#: What a reader of Delta may be asked to know, of which each is either taken into account here or changes no rows.
_FEATURES = frozenset(
    ["columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
     "vacuumProtocolCheck", "variantType", "variantType-preview"]
)  # fmt: skip


def find_delta(place: Location) -> LakeTable:
    """Return the newest version of a Delta table (github.com/delta-io/delta/blob/master/PROTOCOL.md)."""
    import pyarrow as pa

    try:
        import deltalake
    except ImportError:
        raise missing("deltalake", "Delta", place.name) from None
    address = place.name if is_address(place.path) else place.path.absolute().as_uri()
    if "%" in place.path.absolute().as_posix():
        # deltalake takes %20 in a path for a blank, and would open the table of that name.
        raise InputError(f"input {place.name!r} is a table of Delta with % in its path: rename its folder")
    table = told(place, "Delta", lambda: deltalake.DeltaTable(address))
    version = f"version {table.version()}"
    keys, columns = _delta_columns(table, place.name)
    # Files of a version are written before it: all are there by now.
    place = place._replace(found=list_files(place.path)[1])
    added = told(place, "Delta", lambda: pa.table(table.get_add_actions(flatten=True)))
    files = {}
    for row, way in enumerate(added["path"].to_pylist()):
        if re.match(r"/|[A-Za-z][A-Za-z0-9+.-]*:", way):
            raise InputError(
                f"input {place.name!r} is a table of Delta with files outside its folder (a shallow clone?): {way!r}; "
                "write out its rows as a table of its own"
            )
        constants = {}
        for name in table.metadata().partition_columns:
            kind = columns.field(name).type
            constants[name] = added[f"partition.{name}"][row].cast(kind)
        source = take(place, unquote(way), added["size_bytes"][row].as_py(), version)
        files[unquote(way)] = LakeFile(source, added["num_records"][row].as_py(), constants)
    for way, kept in told(place, "Delta", lambda: list(_delta_kept(table))):
        if way not in files:
            raise InputError(f"input {place.name!r} has deleted rows of {way!r}, which {version} does not have")
        files[way] = LakeFile(files[way].source, files[way].rows, files[way].constants, kept=kept)
    return LakeTable(place.name, columns, tuple(files[way] for way in sorted(files)), keys)


def _delta_columns(table: Any, name: str) -> tuple[dict[str, str | int], Any]:
    """Return what the columns are called in files, and Arrow's schema."""
    import pyarrow as pa

    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    if protocol.min_reader_version > 3 or not features <= _FEATURES:
        unknown = ", ".join(sorted(features - _FEATURES)) or f"version {protocol.min_reader_version}"
        raise InputError(f"input {name!r} is a table of Delta whose readers must know {unknown}, which is not known")
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode not in ("none", "name", "id"):
        raise InputError(f"input {name!r} is a table of Delta that maps columns by {mode!r}: it must be by name or id")
    if mode != "none" and protocol.min_reader_version != 2 and "columnMapping" not in features:
        raise InputError(
            f"input {name!r} is a table of Delta that maps columns by {mode}, and does not ask readers to know that: "
            "what its columns are called in files is not known"
        )
    key = {"none": None, "name": "delta.columnMapping.physicalName", "id": "delta.columnMapping.id"}[mode]
    fields = table.schema().fields
    try:
        keys = {each.name: each.name if key is None else each.metadata[key] for each in fields}
    except KeyError:
        raise InputError(f"input {name!r} is a table of Delta with a column that is not mapped: it must be") from None
    return keys, pa.schema(table.schema().to_arrow())


def _delta_kept(table: Any) -> Iterator[tuple[str, Any]]:
    """Yield the files of which rows were deleted, and which rows were not."""
    import pyarrow as pa

    root = table.table_uri.rstrip("/") + "/"
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for uri, kept in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True):
            yield unquote(uri.removeprefix(root)), kept.values
