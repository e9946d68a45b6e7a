"""Reading untrusted files in a process of its own, with limits on time and memory.

`Child` runs this file by its path: it imports nothing of the package, and of libraries only what a file's format needs.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import warnings
import weakref
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

#: Endings of files of geometries, and the one driver of GDAL that may open them.
DRIVERS = {
    ".gpkg": "GPKG",
    ".geojson": "GeoJSON",
    ".json": "GeoJSON",
    ".fgb": "FlatGeobuf",
    ".shp": "ESRI Shapefile",
}
#: Seconds of computing, at least and for each byte of the file: an ordinary file takes a twentieth of it.
_SECONDS, _SECONDS_PER_BYTE = 1.0, 20 / (1 << 20)
#: Bytes of memory beside what the libraries take, at least and for each byte of the file.
_MEMORY, _MEMORY_PER_BYTE = 512 << 20, 32
#: What the process must not take over: settings of GDAL, and hosts that a proxy is not asked for.
_FOREIGN = ("GDAL_", "OGR_", "CPL_", "VSI_", "NO_PROXY", "ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY")
#: Nothing listens there. A file may name addresses (that of its CRS, say), which GDAL then asks for.
_NOWHERE = "http://127.0.0.1:0"
_SETTINGS = {
    "GDAL_HTTP_PROXY": _NOWHERE, "GDAL_HTTPS_PROXY": _NOWHERE, "http_proxy": _NOWHERE, "https_proxy": _NOWHERE,
    "all_proxy": _NOWHERE, "PROJ_NETWORK": "OFF",
    # Memory that is set aside, but not used, counts as well.
    "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip
#: Exit status after a problem that the last line of the standard error stream tells.
FAILED = 3
#: Optional modules of pyogrio, not needed here, which take most of the time to import it.
_OPTIONAL = ("geopandas", "pandas", "pyproj", "shapely")
#: From this size on a geometry may be nested so deeply that reading it ends the process.
_LARGE = 1 << 16
_BUFFER = 1 << 20


class Unreadable(OSError):  # noqa: N818
    """A file that cannot be read, or not within its limits."""


class Child:
    """A process that reads one file; it waits until its rows are asked for, and ends with this object.

    The file is a path, a member of the archive there, or bytes. A layer may be a sheet of a workbook; with `spatial`
    layers must have geometries. Raises Unreadable if the file is damaged, or takes more time or memory than any
    ordinary file of its size.
    """

    def __init__(
        self,
        format: str,
        path: Path,
        *,
        member: str | None = None,
        content: bytes | None = None,
        layer: str | None = None,
        spatial: bool = False,
    ) -> None:
        size = path.stat().st_size if content is None else len(content)
        self._seconds = _SECONDS + _SECONDS_PER_BYTE * size
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `_end`
        environment = {k: v for k, v in os.environ.items() if not k.upper().startswith(_FOREIGN)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env=environment | _SETTINGS,
        )  # fmt: skip
        self._end = weakref.finalize(self, _end, self._process, self._errors)
        job = {
            "format": format, "path": str(path.absolute()), "member": member, "layer": layer, "spatial": spatial,
            "bytes": None if content is None else len(content),
            "driver": DRIVERS.get(Path(member or path).suffix.lower()),
            "seconds": self._seconds, "memory": _MEMORY + _MEMORY_PER_BYTE * size,
        }  # fmt: skip
        self._ask(job, content or b"")
        answer = self._answers.readline()
        if not answer.endswith(b"\n"):
            self._refuse()
        #: Description of the file by the process.
        self.description: dict[str, Any] = json.loads(answer)

    def batches(self, **request: Any) -> Iterator[Any]:
        """Yield Arrow batches of the columns that are requested, once; raise Unreadable as the class does."""
        import pyarrow as pa

        self._ask(request)
        try:
            if self._answers.peek(1):  # type: ignore[attr-defined]
                with pa.ipc.open_stream(self._answers) as reader:
                    yield from reader
        except (pa.ArrowException, OSError):
            pass  # the process has ended, and says why
        if self._process.wait() != 0:
            self._refuse()
        self._end()

    @property
    def _answers(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _ask(self, request: dict[str, Any], content: bytes = b"") -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what ended the process is found when its answer is read
            self._process.stdin.write(json.dumps(request).encode() + b"\n" + content)
            self._process.stdin.flush()

    def _refuse(self) -> None:
        """Raise Unreadable with the reason why the process ended."""
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        self._end()
        if status == -getattr(signal, "SIGPROF", 0):
            raise Unreadable(
                f"reading it takes more than {self._seconds:.0f} s of computing, as no ordinary file of its size does"
            )
        raise Unreadable(lines[-1] if status == FAILED and lines else "it makes its reader crash")


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout, errors):
        with contextlib.suppress(OSError):
            stream.close()  # type: ignore[union-attr]
    process.wait()


# --- in the process -------------------------------------------------------------------------------------------


def main() -> None:
    """Read a job from the standard input stream, answer with a description, and on request with batches."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries must not end up among the answers
    requests = sys.stdin.buffer
    job = json.loads(requests.readline())
    content = requests.read(job["bytes"]) if job["bytes"] is not None else None
    try:
        reader = _READERS[job["format"]](job, content)
        _limit(job["seconds"], job["memory"])
        answers.write(json.dumps(reader.describe()).encode() + b"\n")
        answers.flush()
        if request := requests.readline():
            _send(reader.batches(**json.loads(request)), answers)
    except MemoryError:
        _fail("reading it takes more memory than any ordinary file of its size does")
    except Exception as problem:
        _fail(" ".join(str(problem).split())[:500] or type(problem).__name__)


def _limit(seconds: float, memory: int) -> None:
    """Have the system end this process after some seconds of computing, and refuse it more memory."""
    try:
        import resource
    except ImportError:  # not on every system
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm") if os.path.exists("/proc/self/statm") else io.StringIO("0") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = now + memory
    resource.setrlimit(resource.RLIMIT_AS, (wanted if most < 0 else min(wanted, most), most))


def _send(batches: Iterator[Any], answers: IO[bytes]) -> None:
    import pyarrow as pa

    first = next(batches, None)
    if first is not None:
        with pa.ipc.new_stream(answers, first.schema) as writer:
            for batch in itertools.chain([first], batches):
                writer.write_batch(batch)
    answers.flush()


def _fail(problem: str) -> None:
    sys.stderr.write(f"\n{problem}\n")
    sys.stderr.flush()
    os._exit(FAILED)


def _open(job: dict[str, Any], content: bytes | None) -> IO[bytes]:
    """Open the file, a member of an archive, or the bytes that came with the job."""
    if content is not None:
        return io.BytesIO(content)
    if job["member"] is None:
        return open(job["path"], "rb")
    with zipfile.ZipFile(job["path"]) as archive:  # the file is closed with the member
        return archive.open(job["member"])


class Layers:
    """The layers of a file, opened by one driver of GDAL and no other, without the network."""

    def __init__(self, job: dict[str, Any], content: bytes | None) -> None:
        _do_without(*_OPTIONAL)
        import pyogrio
        from pyogrio import _ogr

        driver = job["driver"]
        others = [name for name in pyogrio.list_drivers() if name != driver]
        # Drivers are taken out where they are registered, which importing has just done.
        pyogrio.set_gdal_config_options({"OGR_SKIP": ",".join(others)})
        _ogr._register_drivers()
        if list(pyogrio.list_drivers()) != [driver]:
            raise OSError(f"GDAL cannot be told to read with its driver {driver} alone")
        self._job = job
        self._path = job["path"] if job["member"] is None else f"/vsizip/{{{job['path']}}}/{job['member']}"

    def describe(self) -> dict[str, Any]:
        """Return the names of the layers; fields, CRS and number of rows of the chosen or only one."""
        import pyogrio

        views = self._views() if self._job["driver"] == "GPKG" else set()
        # A table without geometries, such as the styles that a map was drawn with, may be no choice.
        found, spatial = pyogrio.list_layers(self._path), self._job["spatial"]
        layers = [str(name) for name, kind in found if kind is not None or not spatial]
        self._layer = self._job["layer"]
        if self._layer is None and len(layers) == 1:
            self._layer = layers[0]
        if str(self._layer).lower() in views:
            raise OSError("its layer is a view, which may compute without end: save it as a layer of its own")
        if self._layer not in layers:
            return {"layers": layers}
        info = pyogrio.read_info(self._path, layer=self._layer)
        rows = info["features"]
        return {
            "layers": layers,
            "names": [str(name) for name in info["fields"]],
            "crs": info["crs"],
            "rows": None if rows is None or rows < 0 else int(rows),
        }

    def batches(self, columns: list[str] | None, geometry: bool, rows: int) -> Iterator[Any]:
        """Yield batches of some columns, or all; the geometry, as WKB, comes last and is called "geometry"."""
        import pyarrow as pa
        from pyogrio.raw import open_arrow

        # What the reader notices (repeated ids, empty geometries) is no matter here.
        warnings.simplefilter("ignore")
        with open_arrow(
            self._path, layer=self._layer, columns=columns, batch_size=rows, read_geometry=geometry, use_pyarrow=True
        ) as (meta, reader):
            own = meta["geometry_name"] or "wkb_geometry"
            wanted = [name for name in reader.schema.names if name != own] if columns is None else columns
            for batch in reader:
                arrays = [batch.column(name) for name in wanted]
                if geometry:
                    arrays.append(_checked(batch.column(own)))
                yield pa.RecordBatch.from_arrays(arrays, [*wanted, "geometry"] if geometry else wanted)

    def _views(self) -> set[str]:
        """Return the tables of a GeoPackage that are computed as they are read, in small letters.

        Raises OSError if one of them says what the layers are.
        """
        if self._job["member"] is None:
            base = sqlite3.connect(f"{Path(self._path).as_uri()}?mode=ro", uri=True)
        else:
            base = sqlite3.connect(":memory:")
            base.deserialize(_open(self._job, None).read())
        query = "SELECT type, name, sql FROM sqlite_master WHERE type IN ('view', 'table')"
        with contextlib.closing(base):
            base.execute("PRAGMA trusted_schema = OFF")
            made = list(base.execute(query))
        views = {str(name).lower() for kind, name, sql in made if kind == "view" or _computed(str(sql))}
        if wrong := sorted(name for name in views if name.startswith(("gpkg_", "sqlite_"))):
            raise OSError(f"{wrong[0]!r} in it must be a table, but is a view")
        return views


def _do_without(*names: str) -> None:
    """Have optional modules taken for not installed: importing them takes longer than reading most files."""
    for name in names:
        sys.modules[name] = None  # type: ignore[assignment]


def _computed(sql: str) -> bool:
    """Return whether a table is virtual, and not one of the spatial indices that GeoPackages have."""
    made, _, module = sql.upper().partition(" USING ")
    return made.split()[:2] == ["CREATE", "VIRTUAL"] and "RTREE" not in module.split("(")[0]


def _checked(column: Any) -> Any:
    """Return a column of geometries; a geometry nested too deeply ends the process here, where that does no harm."""
    import pyarrow as pa

    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if column.nbytes <= _LARGE:  # all of them: what follows is slow to import
        return column
    import pyarrow.compute as pc

    if (pc.max(pc.binary_length(column)).as_py() or 0) > _LARGE:
        for name in ("numpy", "shapely"):
            if sys.modules.get(name) is None:
                sys.modules.pop(name, None)
        import shapely

        shapely.from_wkb(column.to_pylist(), on_invalid="ignore")
    return column


class Parquet:
    """The columns of a Parquet file, whose footer is read where the file is opened."""

    def __init__(self, job: dict[str, Any], content: bytes | None) -> None:
        _do_without("numpy")
        import pyarrow.parquet  # noqa: F401 - before memory is limited

        self._job, self._content = job, content

    def describe(self) -> dict[str, Any]:
        return {}

    def batches(self, columns: list[str] | None, geometry: bool, rows: int) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        # Pages are read as they are needed: a row group may be as large as the file.
        with (
            _open(self._job, self._content) as source,
            pq.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False) as file,
        ):
            for batch in file.iter_batches(batch_size=rows, columns=columns):
                for column in batch.columns:
                    if pa.types.is_dictionary(column.type):
                        # What takes the rows writes every text out, and has no limit.
                        column.dictionary_decode()
                    elif pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
                        _checked(column)
                yield batch


class Sheets:
    """A sheet of a workbook; its cells become text, as they would in a file of text."""

    def __init__(self, job: dict[str, Any], content: bytes | None) -> None:
        _do_without("numpy")
        import openpyxl  # noqa: F401 - before memory is limited
        import pyarrow  # noqa: F401

        self._job = job

    def describe(self) -> dict[str, Any]:
        """Return the names of the sheets, and the first row, if there is one, of the chosen or only one."""
        import openpyxl

        warnings.simplefilter("ignore")  # about styles and the like, which are no matter here
        book = openpyxl.load_workbook(_open(self._job, None), read_only=True, data_only=True)
        sheets = [sheet.title for sheet in book.worksheets]
        chosen = self._job["layer"]
        if chosen is None and len(sheets) == 1:
            chosen = sheets[0]
        if chosen not in sheets:
            return {"layers": sheets}
        self._sheet = book[chosen]
        self._sheet.reset_dimensions()  # what the file says of them is often wrong
        return {"layers": sheets, "names": [cell or "" for cell in next(self._rows(None), [])]}

    def batches(self, columns: list[int], skip: int, rows: int) -> Iterator[Any]:
        import pyarrow as pa

        # A row is padded up to the last column that is read, not to the last that it has.
        found = itertools.islice(self._rows(max(columns, default=0) + 1), skip, None)
        names = [str(i) for i in range(len(columns))]
        while some := list(itertools.islice(found, rows)):
            arrays = [pa.array([row[i] if i < len(row) else None for row in some], pa.string()) for i in columns]
            yield pa.RecordBatch.from_arrays(arrays, names)

    def _rows(self, width: int | None) -> Iterator[list[str | None]]:
        """Yield rows that are not empty, up to a width."""
        for row in self._sheet.iter_rows(values_only=True, max_col=width):
            cells = [_as_text(cell) for cell in row]
            if any(cell is not None for cell in cells):
                yield cells


def _as_text(cell: Any) -> str | None:
    """Return a cell as a file of text would have it."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1 << 53 else repr(cell)
    return cell.isoformat() if isinstance(cell, datetime.date | datetime.time) else str(cell)


_READERS: dict[str, Any] = {"geo": Layers, "parquet": Parquet, "excel": Sheets}

if __name__ == "__main__":
    main()
