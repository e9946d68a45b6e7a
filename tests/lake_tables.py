"""Tables of Delta and Iceberg for tests, with what no writer here writes: mapped columns, and deleted rows in files."""

import json
import struct
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _bitmap(positions):
    from pyroaring import BitMap

    return struct.pack("<QI", 1, 0) + BitMap(positions).serialize()


def _z85(data):
    text = ""
    for (word,) in struct.iter_unpack(">I", data):
        text += "".join(Z85[word // 85**k % 85] for k in reversed(range(5)))
    return text


def deletion_vector(positions):
    """What an entry of a Delta log says of rows that were deleted."""
    data = struct.pack("<I", 1681511377) + _bitmap(positions)
    padded = data + bytes(-len(data) % 4)
    return {"deletionVector": {
        "storageType": "i", "pathOrInlineDv": _z85(padded), "sizeInBytes": len(data), "cardinality": len(positions),
    }}  # fmt: skip


def write_delta(folder, columns, files, *, mode="none", features=("columnMapping", "deletionVectors"), partitions=()):
    """A Delta table of `columns` (name, type, name in files) and `files` (way, Arrow table, more of its entry)."""
    (folder / "_delta_log").mkdir(parents=True)
    fields = []
    for i, (name, kind, physical) in enumerate(columns, start=1):
        mapped = {"delta.columnMapping.id": i, "delta.columnMapping.physicalName": physical} if mode != "none" else {}
        fields.append({"name": name, "type": kind, "nullable": True, "metadata": mapped})
    features = list(features)
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    metadata = {
        "id": "0", "format": {"provider": "parquet", "options": {}}, "partitionColumns": list(partitions),
        "createdTime": 0,
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "configuration": {} if mode == "none" else {"delta.columnMapping.mode": mode},
    }  # fmt: skip
    log = [{"protocol": protocol}, {"metaData": metadata}]
    for way, table, more in files:
        (folder / way).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / way)
        entry = {"path": way, "partitionValues": {}, "size": (folder / way).stat().st_size, "modificationTime": 0,
                 "dataChange": True, "stats": json.dumps({"numRecords": table.num_rows})}  # fmt: skip
        log.append({"add": entry | more})
    (folder / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, log)))
    return folder


def numbered(table, *numbers):
    """A table whose columns have these numbers in Parquet."""
    fields = zip(table.schema, numbers, strict=True)
    return table.cast(pa.schema([each.with_metadata({"PARQUET:field_id": str(n)}) for each, n in fields]))


def iceberg_catalog(folder):
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir()
    catalog = SqlCatalog("tests", uri="sqlite:///:memory:", warehouse=folder.as_uri())
    catalog.create_namespace("n")
    return catalog


def metadata_of(table):
    """The folder of an Iceberg table, and the path of its metadata."""
    from pathlib import Path
    from urllib.request import url2pathname

    path = Path(url2pathname(table.metadata_location.removeprefix("file://")))
    return path.parent.parent, path


def hint(table):
    """Name the newest version of an Iceberg table as a catalog in files does; return the table's folder."""
    folder, path = metadata_of(table)
    (folder / "metadata" / "version-hint.text").write_text(path.name.removesuffix(".metadata.json"))
    return folder


def delete_by_files(table, positions, kind):
    """Delete rows of an Iceberg table by a file of `kind` ("positions", "puffin", "equality"); return the metadata.

    `positions` are the rows of each data file, by its location.
    """
    from pyiceberg import manifest as m
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.typedef import Record

    class Deletes(m.ManifestWriterV2):
        def content(self):
            return m.ManifestContent.DELETES

        @property
        def _meta(self):
            return {**super()._meta, "content": "deletes"}

    io, folder, metadata = PyArrowFileIO(), *metadata_of(table)
    number, snapshot = table.metadata.last_sequence_number + 1, table.current_snapshot()
    written = folder / "data" / f"deletes-{kind}.{'puffin' if kind == 'puffin' else 'parquet'}"
    if kind == "puffin":
        written.write_bytes(_puffin(positions))
    elif kind == "positions":
        pairs = [(path, row) for path, rows in sorted(positions.items()) for row in rows]
        pq.write_table(pa.table({"file_path": [p for p, _ in pairs], "pos": [row for _, row in pairs]}), written)
    else:
        pq.write_table(numbered(pa.table({"x": [1.0]}), 1), written)
    content = m.DataFileContent.EQUALITY_DELETES if kind == "equality" else m.DataFileContent.POSITION_DELETES
    only = {2147483546: next(iter(positions)).encode()} if len(positions) == 1 else None
    entry = m.DataFile.from_args(
        content=content, file_path=written.as_uri(), partition=Record(), record_count=1, spec_id=0,
        file_format="PUFFIN" if kind == "puffin" else "PARQUET", file_size_in_bytes=written.stat().st_size,
        lower_bounds=only, upper_bounds=only, equality_ids=[1] if kind == "equality" else None,
    )  # fmt: skip
    path = f"{table.location()}/metadata/deletes-{kind}.avro"
    with Deletes(table.spec(), table.schema(), io.new_output(path), 77, "null") as writer:
        writer.add_entry(m.ManifestEntry.from_args(status=m.ManifestEntryStatus.ADDED, snapshot_id=77, data_file=entry))
    listed = f"{table.location()}/metadata/snap-{kind}.avro"
    with m.write_manifest_list(2, io.new_output(listed), 77, snapshot.snapshot_id, number, "null") as lists:
        lists.add_manifests([*snapshot.manifests(io), writer.to_manifest_file()])
    said = json.loads(metadata.read_text())
    added = said["snapshots"][-1] | {
        "snapshot-id": 77, "parent-snapshot-id": snapshot.snapshot_id, "sequence-number": number,
        "manifest-list": listed, "summary": {"operation": "delete"},
    }  # fmt: skip
    said |= {"snapshots": [*said["snapshots"], added], "current-snapshot-id": 77, "last-sequence-number": number}
    said["refs"]["main"]["snapshot-id"] = 77
    newer = metadata.with_name(f"v7-{kind}.metadata.json")
    newer.write_text(json.dumps(said))
    return newer


def _puffin(positions):
    """A Puffin file with a vector of deleted rows for each data file."""
    blobs, described, at = b"", [], 4
    for path, rows in positions.items():
        vector = b"\xd1\xd3\x39\x64" + _bitmap(rows)
        blob = struct.pack(">I", len(vector)) + vector + struct.pack(">I", zlib.crc32(vector))
        described.append({
            "type": "deletion-vector-v1", "fields": [], "snapshot-id": -1, "sequence-number": -1,
            "offset": at + len(blobs), "length": len(blob),
            "properties": {"referenced-data-file": path, "cardinality": str(len(rows))},
        })  # fmt: skip
        blobs += blob
    footer = json.dumps({"blobs": described}).encode()
    return b"PFA1" + blobs + b"PFA1" + footer + struct.pack("<I", len(footer)) + bytes(4) + b"PFA1"
