"""Folders of Parquet files, on disk or in object storage, as one table of all their rows."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from deltahist._objects import StoredFile, ask, is_address, open_store, read_address
from deltahist.counting.arrays import Reading
from deltahist.counting.opening import is_database
from deltahist.counting.tables import (
    Batches,
    Input,
    OpenedTable,
    format_of,
    open_parquet,
    readable,
    version_of,
)
from deltahist.errors import InputError

#: Bytes of an object that are asked for at a time: each time takes as long as some megabytes.
_REQUEST = 8 << 20
#: Value of a partition whose rows have none.
_NULL = "__HIVE_DEFAULT_PARTITION__"
#: What lies in folders of tables whose files are not all part of the table, and the name of such a table.
_MANAGED = {"_delta_log": "Delta", ".hoodie": "Hudi"}


@dataclass(frozen=True)
class PartedTable:
    """The parts of a folder in order of their paths, and of each the values of its partition columns."""

    name: str
    sources: tuple[Input, ...]
    partitions: tuple[dict[str, str | None], ...]

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(source.size for source in self.sources)

    def check_unchanged(self) -> None:
        """Do nothing: each part is checked when its rows have been read."""


def list_files(path: Path) -> tuple[str, dict[str, Input]]:
    """Return the name of a folder or an address, and all files below it by their ways from it.

    Raises InputError if it cannot be read, a part is a symbolic link, or an address cannot be taken.
    """
    if is_address(path):
        return _list_objects(path)
    name = path.name or str(path)
    with readable(name):
        return name, dict(_walk(path, name))


def find_parts(name: str, found: dict[str, Input], format: str | None = None) -> PartedTable:
    """Return the Parquet files of a folder, given all its files by their ways.

    Files and folders whose names begin with "." or "_" are passed over, as are files that are no tables.

    Raises InputError if there are none, other tables lie beside them, a table of Delta, Hudi or Iceberg is among them,
    or their partitions differ.
    """
    taken = {way: source for way, source in sorted(found.items()) if _is_taken(way, name, format)}
    if not taken:
        raise InputError(
            f"input {name!r} is empty: it holds no Parquet files (named otherwise? then format='parquet')"
        )
    partitions = [_partition(way, source.name) for way, source in taken.items()]
    sources = tuple(taken.values())
    for source, values in zip(sources, partitions, strict=True):
        if list(values) != list(partitions[0]):
            first, own = (", ".join(keys) or "none" for keys in (partitions[0], values))
            raise InputError(
                f"part {source.name!r} lies in partitions of {own}, but {sources[0].name!r} in those of {first}: all "
                "parts must have the same"
            )
    return PartedTable(name, sources, tuple(partitions))


def open_parts(parts: PartedTable, reading: Reading) -> OpenedTable:
    """Open a folder of Parquet files as one table; its partitions are columns of text after the others.

    Raises InputError if the first part cannot be read, or has a column that a partition is called by.
    """
    import pyarrow as pa

    first = _open(parts.sources[0], reading)
    keys = list(parts.partitions[0])
    width = len(first.names)
    if both := sorted(set(keys) & set(first.names)):
        raise InputError(
            f"column {both[0]!r} is in {parts.sources[0].name!r}, and a partition is called so, too: which of them "
            "holds is not known; rename the folders"
        )
    if not width:
        raise InputError(f"input {parts.sources[0].name!r} is empty: it has no columns")

    def read(positions: list[int], geometry: bool, rows: int) -> Batches:
        own = [i for i in positions if i < width]
        own = own or ([] if geometry else [0])  # the number of rows is that of a column
        for k, (source, values) in enumerate(zip(parts.sources, parts.partitions, strict=True)):
            with unchanged(source):
                table = _open(source, reading) if k else first
                _check_alike(table, first, source.name, parts.sources[0].name)
                for columns, malformed in table.read(own, geometry, rows):
                    found = dict(zip(own, columns, strict=False))
                    for i, value in enumerate(values.values(), start=width):
                        found[i] = pa.repeat(pa.scalar(value, pa.string()), len(columns[-1]))
                    yield [found[i] for i in positions] + columns[len(own) :], malformed

    number = first.rows if len(parts.sources) == 1 else None
    return replace(first, names=[*first.names, *keys], read=read, rows=number)


@contextmanager
def unchanged(source: Input) -> Iterator[None]:
    """Raise InputError if a part is another one after it was read than it was found, or cannot be read."""
    with readable(source.name):
        try:
            yield
        except Exception:
            source.check_unchanged()  # which says more
            raise
        source.check_unchanged()


def _open(source: Input, reading: Reading) -> OpenedTable:
    source.check_unchanged()
    return open_parquet(source, reading)


def _check_alike(table: OpenedTable, first: OpenedTable, name: str, first_name: str) -> None:
    """Raise InputError if a part has other columns than the first, or geometries of another kind."""
    if table.types != first.types:
        here, there = ([f"{column} ({kind})" for column, kind in each.types] for each in (table, first))
        differ = [column for column in here if column not in there], [column for column in there if column not in here]
        own, missing = (", ".join(columns[:5])[:200] or "none" for columns in differ)
        raise InputError(
            f"part {name!r} has other columns than {first_name!r}: only it has {own}, and only that has {missing}; all "
            "parts must have the same columns of the same types in the same order"
        )
    if (table.geometry, table.crs) != (first.geometry, first.crs):
        raise InputError(f"part {name!r} has geometries in another column or CRS than {first_name!r}: write it anew")


# --- finding parts ------------------------------------------------------------------------------------------


def _walk(folder: Path, name: str) -> Iterator[tuple[str, Input]]:
    """Yield the files in a folder and all below it, by their ways from it."""

    def fail(problem: OSError) -> None:
        raise problem

    for where, folders, files in os.walk(folder, onerror=fail):
        for each in (*folders, *files):
            path = Path(where, each)
            way = path.relative_to(folder).as_posix()
            if path.is_symlink() and (each in _MANAGED or not _is_hidden(way)):
                # Whoever made the folder could have files counted that are not in it.
                raise InputError(f"part {f'{name}/{way}'!r} is a symbolic link: put there what it leads to")
            if each in files and not path.is_symlink():
                if not path.is_file() and not _is_hidden(way):
                    raise InputError(f"part {f'{name}/{way}'!r} is no file: it must be one")
                yield way, Input(path, None, "parquet", label=f"{name}/{way}", seen=version_of(path))


def _is_taken(way: str, name: str, format: str | None) -> bool:
    """Return whether a file is a part; raise InputError if it is another table, or says that this is no mere folder."""
    steps = PurePosixPath(way).parts
    managed = next((_MANAGED[step] for step in steps if step in _MANAGED), None)
    managed = "Iceberg" if way.endswith(".metadata.json") else managed
    if managed == "Hudi":
        raise InputError(
            f"input {name!r} is a table of Hudi: rows that it no longer has lie beside those that it has; write out "
            "those that it has as Parquet"
        )
    if managed is not None:
        raise InputError(f"input {name!r} holds a table of {managed} ({way!r}): name that table's own folder")
    if _is_hidden(way):
        return False
    found = format_of(way)
    if format is None and found not in (None, "parquet"):
        raise InputError(
            f"input {name!r} is a folder with {way!r}, which is {found}: a folder is one table if all is Parquet; take "
            "it out, or begin its name with '_' (one file per step of a stream? then leave out the times)"
        )
    return format is not None or found == "parquet"


def _is_hidden(way: str) -> bool:
    """Return whether programs keep notes there; a column may begin with "_"."""
    return any(step[0] == "." or (step[0] == "_" and "=" not in step) for step in PurePosixPath(way).parts)


def _partition(way: str, name: str) -> dict[str, str | None]:
    """Return the values that folders give to the rows of a part: "day=2026-11-01"."""
    found: dict[str, str | None] = {}
    for step in PurePosixPath(way).parts[:-1]:
        key, equals, value = step.partition("=")
        if not equals:
            continue
        key = unquote(key)
        if not key or key in found:
            raise InputError(f"part {name!r} lies in a partition without a name, or in two of one name: rename them")
        found[key] = None if value == _NULL else unquote(value)
    return found


# --- object storage -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StoredInput(Input):
    """An object in object storage, in the version that was found."""

    stored: StoredFile

    @property
    def buffer(self) -> int:
        """Bytes that are read at a time."""
        return _REQUEST

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return self.stored.size

    def file(self) -> Any:
        """Return the object as a file that is read at any place."""
        return self.stored.file()

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        """Yield the path of a copy, which is gone afterwards: the process that reads it has no network."""
        with tempfile.TemporaryDirectory(prefix="deltahist-") as folder:
            path = Path(folder, "part.parquet")
            with path.open("wb") as copy:
                shutil.copyfileobj(self.file(), copy, _REQUEST)
            yield path


def _list_objects(path: Path) -> tuple[str, dict[str, Input]]:
    """Return the name of an address, and by their ways from it the objects below it, or the one there."""
    scheme = path.as_posix().partition(":")[0].lower()
    if is_database(f"{scheme}://"):
        raise InputError(f"input is a database, {scheme}://…: say which of its tables, table='visits'")
    address = read_address(path, "input")
    name, key = str(address), address.key
    store = open_store(address, what := f"input {name!r}")
    import obstore

    found = ask(what, lambda: [each for page in obstore.list(store, key or None) for each in page])
    single = not found
    if single:
        found = [ask(what, lambda: obstore.head(store, key))]
    objects: dict[str, Input] = {}
    for each in found:
        way = PurePosixPath(key).name if single else each["path"].removeprefix(key).lstrip("/")
        label = name if single else f"{name.rstrip('/')}/{way}"
        tag = each["e_tag"]
        if tag is None:
            raise InputError(f"input {label!r} comes without an ETag: whether it changes could not be noticed")
        if each["size"] or format_of(way):  # else the mark of a folder
            stored = StoredFile(label, f"input {label!r}", store, each["path"], each["size"], tag)
            objects[way] = StoredInput(Path(each["path"]), None, "parquet", label=label, stored=stored)
    return name, objects
