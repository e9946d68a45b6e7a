"""Shapes of requests and responses, for /openapi.json: nothing is read or written by them, which would take long."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

_PROBLEM = "application/problem+json"


class Problem(BaseModel):
    """An error (RFC 9457): `detail` names the field, its value and the rule."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str


class _Meaning(BaseModel):
    """Said with every answer."""

    unit: str = Field(description="of estimates, errors and ends of intervals")
    level: float = Field(description="share of intervals that hold the truth", gt=0, lt=1)
    estimates: str = Field(description="unbiased, or by which method they are not negative")
    cost: str = Field(description="of asking again: none")


class BoxAnswer(_Meaning):
    """The number of points in a box."""

    model_config = ConfigDict(extra="allow")
    estimate: float | None = Field(description="points")
    std_error: float | None = Field(description="points; of noise and of places in cells together")
    low: float | None = Field(description="points; lower end of the interval")
    high: float | None = Field(description="points; upper end of the interval")
    noise_error: float | None = Field(0.0, description="points; the part of std_error that is noise")
    placement_error: float | None = Field(0.0, description="points; the part that is places within cut cells")
    cut: float | None = Field(0.0, description="share of the box's area in cells that it cuts, from 0 to 1")
    inner: float | None = Field(0.0, description="points, if those of cut cells lie outside")
    outer: float | None = Field(0.0, description="points, if those of cut cells lie inside")
    outside: float | None = Field(0.0, description="share of the box's area outside the map, from 0 to 1")
    note: str | None = Field(None, description="that the box was clipped")


class BoxAnswers(_Meaning):
    """The numbers of points in boxes: every column is a list in their order."""

    model_config = ConfigDict(extra="allow")
    estimate: list[float | None] = Field(description="points")
    std_error: list[float | None] = Field(description="points")
    low: list[float | None] = Field(description="points")
    high: list[float | None] = Field(description="points")


class BoxesAsked(BaseModel):
    """Boxes of which the numbers of points are asked."""

    model_config = ConfigDict(extra="forbid")
    boxes: list[list[float]] = Field(description="west, south, east, north each; low, high on a line", min_length=1)
    crs: str | None = Field(None, description="of the boxes: the release's own; longitude and latitude if left out")
    level: float = Field(0.95, gt=0, lt=1)
    nonnegative: bool = False


class FeatureCollection(BaseModel):
    """GeoJSON (RFC 7946)."""

    model_config = ConfigDict(extra="allow")
    type: str = Field(pattern="^FeatureCollection$")
    features: list[dict[str, Any]]


class GeoFeature(BaseModel):
    """GeoJSON (RFC 7946)."""

    model_config = ConfigDict(extra="allow")
    type: str = Field(pattern="^Feature$")
    id: int
    geometry: dict[str, Any]
    properties: dict[str, float]


class Described(BaseModel):
    """A release and its promise."""

    model_config = ConfigDict(extra="allow")
    id: str
    kind: str = Field(description="the mechanism, in words")
    promise: str
    may_be_published: str
    bounds: list[float] = Field(description="of the map, in units of its CRS")
    crs: str | None
    shape: list[int] = Field(description="cells along each axis")
    digest: str = Field(description="SHA-256 of the release")
    links: dict[str, str]


class Listed(BaseModel):
    """All releases."""

    model_config = ConfigDict(extra="allow")
    releases: list[Described]


class Legend(BaseModel):
    """The colours of tiles."""

    unit: str = Field(description="of values")
    stops: list[list[float | str]] = Field(description="a round value with its colour, as #rrggbb, each; values rise")
    hatched: str = Field(description="the meaning of a hatch, in words")
    scale: str = Field(description="what tiles take, to be drawn on this very scale")
    minimum: float = Field(description="lesser values have the first colour")
    maximum: float = Field(description="larger values have the last colour")


class Health(BaseModel):
    """That the service is up."""

    status: str
    releases: int = Field(description="number of releases that are served")


def problems() -> dict[int | str, dict[str, Any]]:
    """Return how routes describe their errors."""
    schema = {"content": {_PROBLEM: {"schema": Problem.model_json_schema()}}}
    return {
        "4XX": {"description": "The request cannot be answered: `detail` says why.", **schema},
        "503": {"description": "More is asked than can be answered in time: ask again later.", **schema},
    }


def shape(model: type[BaseModel], *others: str) -> dict[int | str, dict[str, Any]]:
    """Return how a route describes its answer: JSON of a model, or other media without one."""
    return {200: {"model": model, "content": {media: {"schema": {}} for media in others}}}


def file_of(media: str, model: type[BaseModel] | None = None) -> dict[int | str, dict[str, Any]]:
    """Return how a route describes that it answers with a file, or with another JSON than the usual."""
    schema = {"type": "string", "format": "binary"} if model is None else model.model_json_schema()
    return {200: {"content": {media: {"schema": schema}}}}


def reads(models: dict[str, type[BaseModel]]) -> dict[str, Any]:
    """Return how a route describes the bodies that it reads, by their media."""
    return {"required": True, "content": {each: {"schema": m.model_json_schema()} for each, m in models.items()}}
