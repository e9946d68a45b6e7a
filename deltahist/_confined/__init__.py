"""Reading untrusted files in a process of its own, with limits on time and memory; `child.py` runs there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import weakref
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
    **dict.fromkeys(
        ("GDAL_HTTP_PROXY", "GDAL_HTTPS_PROXY", "http_proxy", "https_proxy", "all_proxy"), _NOWHERE
    ),
    # Memory that is set aside, but not used, counts as well.
    **{"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"},
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "PROJ_NETWORK": "OFF",
}


class Unreadable(OSError):  # noqa: N818
    """A file that cannot be read, or not within its limits."""


class Child:
    """A process that reads one file; it waits until its rows are asked for, and ends with this object.

    Parameters
    ----------
    format : "geo", "parquet" or "excel".
    path : the file. member : of the archive that it is; None if it is none.
    content : the bytes of the file where there is no file.
    layer : of a file with several, or the sheet of a workbook.
    spatial : only layers with geometries are looked at.

    Raises
    ------
    Unreadable
        If the file is damaged, or reading it takes more time or memory than any ordinary file of its size.
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
            [sys.executable, "-P", str(Path(__file__).with_name("child.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment | _SETTINGS,
        )
        self._end = weakref.finalize(self, _end, self._process, self._errors)
        job = {
            "format": format,
            "path": str(path.absolute()),
            "member": member,
            "bytes": None if content is None else len(content),
            "layer": layer,
            "spatial": spatial,
            "driver": DRIVERS.get(Path(member or path).suffix.lower()),
            "seconds": self._seconds,
            "memory": _MEMORY + _MEMORY_PER_BYTE * size,
        }
        self._ask(job, content or b"")
        said = self._answers.readline()
        if not said.endswith(b"\n"):
            self._refuse()
        #: Description of the file by the process.
        self.description: dict[str, Any] = json.loads(said)

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
        try:
            said = json.loads(lines[-1])
        except (ValueError, IndexError):
            said = None
        if status == -getattr(signal, "SIGPROF", 0):
            raise Unreadable(
                f"reading it takes more than {self._seconds:.0f} s of computing, as no ordinary file of its size does"
            )
        if said is None:
            raise Unreadable("it makes its reader crash")
        if said["kind"] == "memory":
            raise Unreadable("reading it takes more memory than any ordinary file of its size does")
        raise Unreadable(said["problem"])


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout, errors):
        with contextlib.suppress(OSError):
            stream.close()  # type: ignore[union-attr]
    process.wait()
