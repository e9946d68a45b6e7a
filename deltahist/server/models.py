"""Pydantic models of request parameters and responses, and a msgspec struct for batches of boxes."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

Span: TypeAlias = Annotated[str, Field(pattern=r"^[^,]+,[^,]+$")]
Corners = TypeVar("Corners")


class Asked(BaseModel):
    """Query parameters. Unknown names are refused, because they may be misspelt."""

    model_config = ConfigDict(extra="forbid")


class Options(Asked):
    """Options for all answers."""

    crs: str | None = Field(None, description="CRS of coordinates: CRS84 (longitude, latitude) or the release's CRS")
    level: float = Field(0.95, gt=0, lt=1, description="confidence level of the interval")
    nonnegative: bool = Field(False, description="return estimates that are never negative but are biased")
    f: Literal["json", "csv", "arrow"] | None = Field(None, description="format, by default from the Accept header")


class Box(Asked):
    """One box."""

    bbox: str = Field(description="west,south,east,north, or low,high in 1D", examples=["-74.0,40.7,-73.9,40.8"])


class OfRelease(Options):
    """Options for an answer from a release, or from the difference of two releases."""

    compare: str | None = Field(None, description="another release, from whose count to subtract this release's")


class BoxOfRelease(OfRelease, Box):
    """Parameters of an answer to one box from a release."""


class Period(Asked):
    """A period of a series, or the difference of two."""

    between: Span | None = Field(None, description="period to sum: FIRST,LAST (all steps by default)")
    compare: Span | None = Field(None, description="another period, from whose sum to subtract that of `between`")
    mean: bool = Field(False, description="return the mean per step instead of the sum")
    missing: Literal["stop", "skip"] = Field("stop", description="whether to fail at or skip steps without a release")


class OfSeries(Options, Period):
    """Options for an answer from a series."""


class BoxOfSeries(OfSeries, Box):
    """Parameters of an answer to one box from a series."""


class CellsAsked(Asked):
    """Parameters that select blocks of cells."""

    bbox: str | None = Field(None, description="west,south,east,north (low,high in 1D), or by default the whole map")
    crs: str | None = Field(None, description="CRS of bbox: CRS84 (longitude, latitude) or the release's CRS")
    width: int = Field(1, ge=1, le=1 << 20, description="a block's side in cells, doubled if there are too many blocks")
    compare: str | None = Field(None, description="another release, from whose cells to subtract this release's")


class CellsOfSeries(Period, CellsAsked):
    """Parameters that select blocks of cells, summed over a period."""


class ItemsAsked(Asked):
    """Parameters that select features of a collection."""

    bbox: str | None = Field(None, description="west,south,east,north in longitude and latitude")
    limit: int = Field(1_000, ge=1, description="features per page, at most 10,000")
    offset: int = Field(0, ge=0, le=1 << 53)
    datetime: str | None = Field(None, description="ignored, because cells have no time", pattern=r"^[0-9T:Z.+/-]+$")
    f: Literal["json", "geojson"] | None = None


class BoxAnswer(BaseModel):
    """The estimated number of points in a box, with its errors and interval."""

    model_config = ConfigDict(extra="allow")
    estimate: float | None
    std_error: float | None = Field(description="standard error due to noise and unknown positions in cut cells")
    low: float | None
    high: float | None
    noise_error: float | None = Field(None, description="part of std_error due to noise, if the box cuts cells")
    placement_error: float | None = Field(None, description="part of std_error due to unknown positions in cut cells")
    cut: float | None = Field(None, description="share of the box's area that lies in cut cells")
    inner: float | None = Field(None, description="estimate if all points of cut cells lay outside the box")
    outer: float | None = Field(None, description="estimate if all points of cut cells lay inside the box")
    outside: float | None = Field(None, description="share of the box's area that lies outside the map")
    unresolved: float | None = Field(None, description="share of the query that was not measured")
    estimator: str | None = None
    note: str | None = Field(None, description="how the box was clipped, if it was")
    bbox: list[float]
    unit: str
    level: float
    estimates: str = Field(description="unbiased (apart from unknown positions in cut cells) or non-negative")


class FeatureCollection(BaseModel):
    """GeoJSON (RFC 7946)."""

    model_config = ConfigDict(extra="allow")
    type: Literal["FeatureCollection"]
    features: list[dict[str, Any]]


class Boxes(msgspec.Struct, Generic[Corners], forbid_unknown_fields=True):
    """The body of a request for many boxes, which msgspec parses 2 to 5 times as fast as pydantic does."""

    boxes: Annotated[list[Corners], msgspec.Meta(min_length=1)]


def check_size(number: int, most: int, name: str) -> None:
    """Raise HTTPException 413 if a request's body has more than `most` bytes, boxes, features or vertices."""
    if number > most:
        raise HTTPException(413, f"the body has more than {most:,} {name}: split the request")


class Described(BaseModel):
    """A release and its promise."""

    id: str
    kind: str = Field(description="strategy and noise")
    promise: str
    may_be_published: str
    bounds: list[float] = Field(description="bounds of the map, in units of the CRS")
    crs: str | None
    extent: list[float] | None = Field(description="west, south, east, north in degrees")
    shape: list[int] = Field(description="number of cells along each axis")
    digest: str = Field(description="SHA-256 of the release")
    about: dict[str, str] = Field(description="those of title, publisher, contact, licence and date that are given")
    links: dict[str, str]
    withdrawn: dict[str, Any] | None = None
    statement: dict[str, Any] | None = None


class Cells(BaseModel):
    """Blocks of cells, with x varying slowest."""

    model_config = ConfigDict(extra="allow")
    width: int = Field(description="cells along a block's side (blocks at the map's upper edges may have fewer)")
    shape: list[int] = Field(description="number of blocks along each axis")
    unit: str = Field(description="unit of density")
    ends: list[list[int]] = Field(description="edges of the blocks along each axis, as cell numbers")
    x: list[float] = Field(description="x-coordinates of the block corners (longitudes if the map has a CRS)")
    y: list[float]
    density: list[float]
    stands_out: list[bool] = Field(description="whether a block differs from zero (95% confidence for all together)")
    larger: list[dict[str, Any]] = Field(description="larger blocks that stand out although none of their parts does")


def returns(media: dict[str, type[BaseModel] | None]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a response that a route encodes itself."""
    return {200: {"content": {name: {"schema": m.model_json_schema() if m else {}} for name, m in media.items()}}}
