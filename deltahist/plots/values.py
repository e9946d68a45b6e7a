"""What is known of regions, as pictures show it: values with intervals, and which of them stand out from the noise."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.domain.geometries import named
from deltahist.errors import InputError, one_of
from deltahist.plots.colours import Scale, classed_scale
from deltahist.plots.drawn import holds_points_from_outside
from deltahist.plots.ground import geometries_of, region_areas, unit_of_area

if TYPE_CHECKING:
    import geopandas as gpd

    from deltahist.releases.base import BaseRelease

#: A value stands out if its interval is above zero and its standard error at most this part of it.
DOUBT = 1 / 3
#: Names of at most so many letters are written on the map themselves; longer ones are numbered.
_SHORT = 4


@dataclass(frozen=True, eq=False)
class Values:
    """Regions on a map and what is said of them.

    Parameters
    ----------
    names : (m,) of the regions. shapes : (m,) their polygons within the map, in its coordinates.
    value, low, high : (m,) estimates and their intervals in `unit`; NaN where there is no answer.
    doubtful : (m,) whether a value does not stand out from the noise.
    unit : of the values, for people. estimator : which estimates they are, for people.
    at_rim : whether some also hold points from outside the map.
    """

    names: tuple[str, ...]
    shapes: NDArray[Any]
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    doubtful: NDArray[np.bool_]
    unit: str
    estimator: str
    at_rim: bool

    @functools.cached_property
    def order(self) -> NDArray[np.int64]:
        """The regions (at most m) that have an answer, the largest value first."""
        order = np.argsort(-self.value, kind="stable")  # NaN comes last
        return order[: int(np.isfinite(self.value).sum())]

    @functools.cached_property
    def scale(self) -> Scale | None:
        """How values become colours; None if nothing stands out from the noise."""
        sure = self.value[~self.doubtful]
        return (
            classed_scale(sure, float(np.median((self.high - self.low)[~self.doubtful])))
            if len(sure)
            else None
        )

    @functools.cached_property
    def keys(self) -> tuple[str, ...]:
        """What is written on the map for each region: its name if all are short, else its place in the order."""
        if max(map(len, self.names)) <= _SHORT:
            return self.names
        out = [""] * len(self.names)
        for place, region in enumerate(self.order.tolist(), start=1):
            out[region] = str(place)
        return tuple(out)


def values_of(
    release: BaseRelease, answers: gpd.GeoDataFrame, names: Sequence[str] | None = None, per: str = "area"
) -> Values:
    """What a picture shows of answers: `dh.answer(release, frame)` for a frame of regions.

    Parameters
    ----------
    names : (m,) of the regions; by default the column `name` or `id`, or their numbers.
    per : values are points per "area" (km², or the square of a plane's unit) or per "region".

    Raises
    ------
    InputError
        If the answers are no such frame, the names are not one for each, or none of it is on the map.
    """
    import shapely

    one_of(("area", "region"), per=per)
    if not hasattr(answers, "geometry"):
        raise InputError(
            f"answers are a {type(answers).__name__} without geometries: they must be what dh.answer(release, frame) "
            "returns for a GeoDataFrame of regions"
        )
    domain = release.domain
    estimate, error, low, high = (_column(answers, c) for c in ("estimate", "std_error", "low", "high"))
    if names is None:  # answers stand behind the columns of the regions themselves
        names = named(answers.loc[:, :"estimate"].drop(columns="estimate"), name="the column of names")["name"]
    called = tuple(map(str, names))
    if len(called) != len(answers):
        raise InputError(f"there are {len(called)} names and {len(answers)} regions: give one name each")
    shapes = shapely.make_valid(geometries_of(answers, domain, "answers"))
    shapes = shapely.intersection(shapes, shapely.box(*domain.bounds))
    area = region_areas(domain, shapes)
    known = np.isfinite(estimate) & (area > 0)
    if not known.any():
        raise InputError("answers say nothing of any region on the map (are they in another CRS?)")
    # A region at whose edge cells of the rim lie holds some of what is counted there.
    inside = [lo + c for lo, c in zip(domain.low, domain.cell, strict=True)]
    inside += [hi - c for hi, c in zip(domain.high, domain.cell, strict=True)]
    reaches = not shapely.covered_by(shapes, shapely.box(*inside)).all()
    unit = f"points per {unit_of_area(domain)}" if per == "area" else "points per region"
    size = np.where(known, area if per == "area" else 1.0, np.nan)
    return Values(
        called,
        shapes,
        estimate / size,
        low / size,
        high / size,
        ~known | (low <= 0) | (error > DOUBT * estimate),
        unit,
        _estimator(release, answers),
        reaches and holds_points_from_outside(release),
    )


def _estimator(release: BaseRelease, answers: gpd.GeoDataFrame) -> str:
    """Which estimates answers are: they say so themselves, where they are not unbiased."""
    if "estimator" not in answers.columns:
        return release.estimator(False)
    return ", ".join(map(str, answers["estimator"].dropna().unique()))


def _column(answers: gpd.GeoDataFrame, name: str) -> NDArray[np.float64]:
    """A column of answers."""
    if name not in answers.columns:
        raise InputError(
            f"answers have no column {name!r}: they must be what dh.answer(release, frame) returns for a GeoDataFrame"
        )
    return np.asarray(answers[name], dtype=np.float64)
