"""The cells of a release as frames of other packages: pandas, GeoPandas, xarray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.decode import Decoder
from deltahist.domain import Domain
from deltahist.domain.grids import cell_codes, has_codes
from deltahist.errors import InputError
from deltahist.workloads import Boxes

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd
    import xarray as xr

    from deltahist.releases.base import BaseRelease

#: What estimates are called that are right on average, for people.
UNBIASED = "unbiased"
CALIBRATED = "non-negative (calibrated)"
#: What stands in for them where that method is not sure of itself; errors are then those of the unbiased estimates.
NEAREST = "non-negative (nearest cells)"
#: Cells whose errors are worked out together.
_AT_ONCE = 1_000_000


def cells_frame(release: BaseRelease, *, nonnegative: bool = False) -> pd.DataFrame:
    """A row per cell: index, edges, centre, estimate and standard error.

    Columns: column, row, west, south, east, north, x, y, estimate, std_error; in 1-D column, low, high, x,
    estimate, std_error. On a grid in EPSG:3035, cell has INSPIRE's names of the cells after column and row. The
    order is that of the arrays: x varies slowest.
    """
    import pandas as pd

    domain = release.domain
    index = np.indices(domain.shape).reshape(domain.ndim, -1)
    sides = [("low", "high")] if domain.ndim == 1 else [("west", "east"), ("south", "north")]
    edges = [domain.edges(axis) for axis in range(domain.ndim)]
    table: dict[str, NDArray[Any]] = dict(zip(("column", "row"), index, strict=False))
    codes = cell_codes(domain)
    if codes is not None:
        table["cell"] = codes.ravel()
    for end in (0, 1):
        for axis, names in enumerate(sides):
            table[names[end]] = edges[axis][index[axis] + end]
    for axis, name in zip(range(domain.ndim), ("x", "y"), strict=False):
        table[name] = domain.centres(axis)[index[axis]]
    cells, errors = release.estimates(nonnegative=nonnegative)
    table["estimate"], table["std_error"] = cells.ravel(), errors.ravel()
    return pd.DataFrame(table)


def columns_of(domain: Domain, estimator: str) -> dict[str, dict[str, str]]:
    """Unit and description of each column of `cells_frame`; `estimator` says which estimates they are.

    >>> columns_of(Domain((0, 4), (4,)), "unbiased")["estimate"]
    {'unit': 'points', 'description': 'points in the cell, unbiased; may be below zero'}
    """
    where = domain.crs or "units of the bounds"
    sides = ("low", "high") if domain.ndim == 1 else ("west", "south", "east", "north")
    axes = ("x", "y")[: domain.ndim]
    kind = f"{estimator}; may be below zero" if estimator == UNBIASED else estimator
    out = {"column": ("1", "number of the cell from the west, from 0")}
    if domain.ndim == 2:
        out["row"] = ("1", "number of the cell from the south, from 0")
    if has_codes(domain):
        out["cell"] = ("1", "INSPIRE's name of the cell")
    out |= {side: (where, f"{side} edge of the cell") for side in sides}
    out |= {axis: (where, f"{axis} of the cell's centre") for axis in axes}
    out["estimate"] = ("points", f"points in the cell, {kind}")
    whose = "unbiased estimate" if estimator == NEAREST else f"estimate beside it, which is {estimator}"
    out["std_error"] = ("points", f"standard error of the {whose}")
    return {name: {"unit": unit, "description": text} for name, (unit, text) in out.items()}


def geo_frame(release: BaseRelease, *, nonnegative: bool = False) -> gpd.GeoDataFrame:
    """`cells_frame` with the cells' boxes as geometry, in the release's CRS, in place of their edges."""
    import geopandas as gpd
    import shapely

    if release.domain.ndim == 1:
        raise InputError("the release has one dimension, and so no geometry: use to_pandas()")
    frame = cells_frame(release, nonnegative=nonnegative)
    shapes = shapely.box(*(frame.pop(side).to_numpy() for side in ("west", "south", "east", "north")))
    return gpd.GeoDataFrame(frame, geometry=shapes, crs=release.domain.crs)


def dataset(release: BaseRelease, *, nonnegative: bool = False) -> xr.Dataset:
    """Estimates and standard errors over the centres of the cells; dimensions y and x (x in 1-D)."""
    try:
        import xarray as xr
    except ImportError:
        raise InputError(
            "to_xarray needs xarray, which is not installed: pip install 'deltahist[xarray]'"
        ) from None
    domain = release.domain
    axes = ("x", "y")[: domain.ndim]
    # Arrays of maps run along y first, so that pictures of them are right side up.
    dims = tuple(reversed(axes))
    variables = {
        name: (dims, cells.T, {"units": "points", "long_name": long})
        for name, long, cells in zip(
            ("estimate", "std_error"),
            (f"points per cell, {release.estimator(nonnegative)}", "standard error"),
            release.estimates(nonnegative=nonnegative),
            strict=True,
        )
    }
    unit = "1" if domain.crs is None else "map units"
    along = {name: (name, domain.centres(axis), {"units": unit}) for axis, name in enumerate(axes)}
    return xr.Dataset(variables, coords=along, attrs={} if domain.crs is None else {"crs": domain.crs})


def cell_errors(domain: Domain, decoder: Decoder) -> NDArray[np.float64]:
    """Standard error of every cell's estimate (domain.shape), as `answer` states it for each cell alone."""
    columns, rest = domain.shape[0], domain.size // domain.shape[0]
    # A closed form is evaluated in parts, to keep memory small; without one, all cells share simulated noise.
    part = columns if decoder.terms(2) is None else max(1, _AT_ONCE // rest)
    variance = [
        decoder.moments(_cell_boxes(domain, start, min(start + part, columns))).variance
        for start in range(0, columns, part)
    ]
    return np.sqrt(np.concatenate(variance)).reshape(domain.shape)


def _cell_boxes(domain: Domain, first: int, last: int) -> Boxes:
    """The cells of the columns from `first` up to `last`, as boxes."""
    index = np.indices((last - first, *domain.shape[1:])).reshape(domain.ndim, -1)
    index[0] += first
    edges = [domain.edges(axis) for axis in range(domain.ndim)]
    return Boxes(
        np.column_stack([edges[axis][index[axis] + end] for end in (0, 1) for axis in range(domain.ndim)])
    )
