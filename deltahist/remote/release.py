"""A release behind a service (`deltahist serve`), with the methods of a release."""

from __future__ import annotations

import functools
import json
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

import numpy as np
from numpy.typing import NDArray

import deltahist.kinds  # noqa: F401  releases of every kind are read
from deltahist._progress import progress
from deltahist.answers import answer
from deltahist.errors import InputError, one_of
from deltahist.releases.base import BaseRelease, from_bytes
from deltahist.releases.tables import NONNEGATIVE, UNBIASED, UNCUT, join_answers
from deltahist.remote.transport import TooLarge, as_json, printable, send, understanding
from deltahist.space.domain import Domain
from deltahist.space.workloads import Boxes, Regions, Span, Workload

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd

#: Columns of answers (m,), by name.
Columns: TypeAlias = dict[str, NDArray[Any]]
_JSON, _GEOJSON = "application/json", "application/geo+json"
_ARROW, _PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
#: Queries, and vertices of regions, that are asked at once: what a service takes unless its operator says otherwise.
_MOST_QUERIES, _MOST_VERTICES = 100_000, 200_000
#: Bytes of a release file that are read.
_MOST_FILE = 2 << 30
_NUMBERS = {"estimate", "std_error", "low", "high", "unresolved", *UNCUT}


def connect(url: str) -> RemoteRelease:
    """Return the release at an address of a service, such as http://127.0.0.1:8000/releases/city.

    Everything that the service sends is treated as untrusted input.

    Raises
    ------
    InputError
        If no service answers there, or the address is not a release's; the message names the releases of the service.

    >>> connect("city.parquet")
    Traceback (most recent call last):
    ...
    deltahist.errors.InputError: url is 'city.parquet': it must be the address of a release at a service, such as http://127.0.0.1:8000/releases/city
    """
    try:
        parts = urlsplit(str(url))
        plain = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        plain = False
    rule = "it must be the address of a release at a service, such as http://127.0.0.1:8000/releases/city"
    if not plain or parts.query or parts.fragment:
        raise InputError(f"url is {url!r}: {rule}")
    address = f"{parts.scheme}://{parts.netloc}{quote(parts.path.rstrip('/'), safe='/%')}"
    if not re.fullmatch(r".*/releases/[^/]+", parts.path.rstrip("/")):
        place = f"{address.removesuffix('/releases')}/releases"
        content, place = send(place, _JSON)
        with understanding(place):
            names = [str(each["id"]) for each in as_json(content)["releases"]]
        known = printable(", ".join(f"{place}/{name}" for name in names))
        raise InputError(f"url is {url!r}: {rule}; this service has {known or 'none'}")
    content, address = send(address, _JSON)
    with understanding(address):
        facts = dict(as_json(content)["statement"])
        return RemoteRelease(address, Domain(**facts["domain"]), facts)


class RemoteRelease:
    """A release behind a service: questions go there, and everything else is read from its file.

    `connect` makes one.

    Parameters
    ----------
    url : address of the release.
    domain : the public space.
    facts : the privacy statement as data.
    """

    def __init__(self, url: str, domain: Domain, facts: dict[str, Any]) -> None:
        self.url, self.domain, self._facts = url, domain, facts
        self.digest: str = str(facts["digest"])

    def answer(self, queries: Workload | Any, *, level: float = 0.95, nonnegative: bool = False) -> pd.DataFrame:
        """Answer queries as `dh.answer` does for the release's file: with the same rows, columns and warnings.

        Geometries are brought to the map here, as for a file, and the service is asked in the release's coordinates.
        Many queries are asked in several requests, and a busy service is waited for.

        Raises
        ------
        InputError
            As `dh.answer`; with the service's words if it refuses, or does not answer; or if the release was replaced.
        """
        return answer(self, queries, level=level, nonnegative=nonnegative)

    def answers(self, work: Workload, *, level: float, nonnegative: bool) -> Columns:
        """Return the columns of `dh.answer` for a workload, an array (m,) each."""
        if not len(work):  # a service answers one at least
            return self.load().answers(work, level=level, nonnegative=nonnegative)
        how: dict[str, Any] = {"level": float(level), "nonnegative": bool(nonnegative)}
        if self.domain.crs is not None:
            how["crs"] = self.domain.crs
        if isinstance(work, Regions):
            import shapely

            work.check(self.domain)
            shapes = shapely.force_2d(work.geometries)
            sizes = shapely.get_num_coordinates(shapes)
            if (sizes > _MOST_VERTICES).any():
                name, size = work.names[int(np.argmax(sizes))], sizes.max()
                raise InputError(
                    f"region {name!r} has {size:,} vertices: a service takes at most {_MOST_VERTICES:,} at once; "
                    "simplify it, or ask the file (`connect(url).load()`)"
                )
            return self._in_pieces(sizes, lambda piece: self._answer_regions(shapes[piece], how))
        spans = work.spans(self.domain)
        corners = work.corners if isinstance(work, Boxes) else _corners(spans, self.domain)
        return self._in_pieces(np.zeros(len(corners)), lambda piece: self._answer_boxes(corners[piece], how))

    def load(self) -> BaseRelease:
        """Download the release file, once, and return its release; DamagedFile as of `dh.load`."""
        return self._loaded

    @functools.cached_property
    def _loaded(self) -> BaseRelease:
        place = f"{self.url}/download"
        release = from_bytes(send(place, _PARQUET, most=_MOST_FILE)[0], place)
        self._check_digest(release.digest)
        return release

    def to_pandas(self, *, nonnegative: bool = False) -> pd.DataFrame:
        """Return a row per cell, as `Release.to_pandas` does, from the downloaded file."""
        return self.load().to_pandas(nonnegative=nonnegative)

    def to_geopandas(self, *, nonnegative: bool = False) -> gpd.GeoDataFrame:
        """Return a row per cell with its box as geometry, as `Release.to_geopandas` does, from the downloaded file."""
        return self.load().to_geopandas(nonnegative=nonnegative)

    def statement(self) -> str:
        """Return the privacy statement as text, from the downloaded file."""
        return self.load().statement()

    def facts(self) -> dict[str, Any]:
        """Return the privacy statement as data."""
        return self._facts

    def __repr__(self) -> str:
        return f"RemoteRelease({self.url!r}): {' × '.join(map(str, self.domain.shape))} cells"

    def _in_pieces(self, sizes: NDArray[Any], ask: Callable[[slice], Columns]) -> Columns:
        """Return the columns of queries of some sizes (m,), asked piece by piece, in their order.

        A piece that is too large for the service is halved.
        """
        waiting, found = _pieces(sizes), []
        with progress("asking", len(sizes)) as done:
            while waiting:
                piece = waiting.pop(0)
                number = piece.stop - piece.start
                try:
                    found.append(ask(piece))
                except TooLarge:
                    if number == 1:
                        raise
                    middle = piece.start + number // 2
                    waiting[:0] = [slice(piece.start, middle), slice(middle, piece.stop)]
                else:
                    done(number)
        return join_answers(found)

    def _answer_boxes(self, corners: NDArray[np.float64], how: dict[str, Any]) -> Columns:
        place = f"{self.url}/answers"
        content, _ = send(place, _ARROW, json.dumps({"boxes": corners.tolist(), **how}).encode(), _JSON)
        with understanding(place):
            columns, about = _arrow_columns(content)
            found, digest = _checked(columns, len(corners)), about[b"digest"].decode()
        self._check_digest(digest)
        return found

    def _answer_regions(self, shapes: NDArray[Any], how: dict[str, Any]) -> Columns:
        import shapely

        query = urlencode(how | {"nonnegative": str(how["nonnegative"]).lower()})
        features = ",".join(
            f'{{"type":"Feature","properties":{{}},"geometry":{text}}}' for text in shapely.to_geojson(shapes)
        )
        body = f'{{"type":"FeatureCollection","features":[{features}]}}'.encode()
        place = f"{self.url}/answers"
        content, _ = send(f"{place}?{query}", _GEOJSON, body, _GEOJSON)
        with understanding(place):
            collection = as_json(content)
            rows, digest = [each["properties"] for each in collection["features"]], collection["digest"]
            found = _checked({name: [row[name] for row in rows] for name in rows[0]}, len(shapes))
        self._check_digest(digest)
        return found

    def _check_digest(self, digest: Any) -> None:
        """Raise InputError on another release: pieces of two would look like one answer."""
        if digest != self.digest:
            raise InputError(f"the release at {self.url} was replaced by another one meanwhile: connect again")


# --- questions and answers ----------------------------------------------------------------------------------


def _corners(spans: Sequence[Span], domain: Domain) -> NDArray[np.float64]:
    """Return the corners (m, 4), on a line (m, 2), of ranges of whole cells."""
    ends = [[domain.edges(axis)[end.astype(np.int64)] for end in span] for axis, span in enumerate(spans)]
    return np.column_stack([low for low, _ in ends] + [high for _, high in ends])


def _pieces(sizes: NDArray[Any]) -> list[slice]:
    """Return the pieces in which queries of some sizes (m,) are asked, all of them together, in order."""
    ends, start, total = [], 0, np.concatenate([[0], np.cumsum(sizes)])
    while start < len(sizes):
        fitting = int(np.searchsorted(total, total[start] + _MOST_VERTICES, "right")) - 1
        ends.append(slice(start, min(fitting, start + _MOST_QUERIES)))
        start = ends[-1].stop
    return ends


def _arrow_columns(content: bytes) -> tuple[Columns, dict[bytes, bytes]]:
    """Return the columns of an Arrow stream and its metadata; ValueError if they are compressed.

    Compressed, a few bytes could fill the memory.
    """
    import pyarrow as pa

    messages = iter(pa.ipc.MessageReader.open_stream(pa.py_buffer(content)))
    schema = pa.ipc.read_schema(next(messages))
    parts: dict[str, list[Any]] = {name: [] for name in schema.names}
    for message in messages:
        if message.type != "record batch" or _is_compressed(message.metadata.to_pybytes()):
            raise ValueError("it has compressed columns, or others than plain ones")
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        for name, column in zip(schema.names, batch.columns, strict=True):
            # Arrow's own way to NumPy would import pandas first.
            plain = column.type == pa.float64() and not column.null_count
            parts[name].append(np.from_dlpack(column) if plain else np.array(column.to_pylist(), dtype=object))
    return {name: np.concatenate(each) for name, each in parts.items()}, dict(schema.metadata)


def _is_compressed(header: bytes) -> bool:
    """Return whether the columns of a record batch are compressed, by its header (Message.fbs of Arrow's format)."""

    def field(table: int, number: int) -> int:
        """Return the place of a table's field; 0 if it is left out."""
        fields = table - struct.unpack_from("<i", header, table)[0]
        (size,) = struct.unpack_from("<H", header, fields)
        held = 4 + 2 * number < size
        (away,) = struct.unpack_from("<H", header, fields + 4 + 2 * number) if held else (0,)
        return table + away if away else 0

    (root,) = struct.unpack_from("<I", header)
    place = field(root, 2)
    batch = place + struct.unpack_from("<I", header, place)[0]
    return field(batch, 3) != 0


def _checked(columns: Mapping[str, Any], number: int) -> Columns:
    """Return columns as `dh.answer` has them; ValueError if they are others, or of another number of queries."""
    out: Columns = {}
    for name, values in columns.items():
        if name == "estimator":
            out[name] = np.array([one_of((UNBIASED, NONNEGATIVE), estimator=each) for each in values], object)
        elif name in _NUMBERS:
            out[name] = np.array(values, dtype=np.float64)  # None is not known: NaN
        else:
            raise ValueError(f"it has a column {name!r}")
        if out[name].shape != (number,):
            raise ValueError(f"it has {len(out[name]):,} values of {name} for {number:,} questions")
    if not {"estimate", "std_error", "low", "high"} <= set(out):
        raise ValueError(f"it has the columns {', '.join(out)} alone")
    return out
