"""Tables of cells and of answers."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist.errors import InputError
from deltahist.space.workloads import Boxes

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd
    import xarray as xr

    from deltahist.releases.base import BaseRelease

#: Names of estimates. Errors and intervals of non-negative ones are those of the unbiased estimates.
UNBIASED, NONNEGATIVE = "unbiased", "non-negative"
#: Name of the estimator if some queries cut cells.
PLACED = "unbiased by noise (positions inside cells are assumed)"
#: Columns about cells that a query cuts. Where it cuts none, each equals the column named here, or is zero.
UNCUT = {"noise_error": "std_error", "placement_error": None, "cut": None, "inner": "estimate", "outer": "estimate"}


def join_answers(found: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return columns of answers that were given in parts, one after another."""
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in max(found, key=len)}
    for each in found:
        for name, parts in columns.items():
            source = name if name in each else UNCUT[name]
            parts.append(np.zeros(len(each["estimate"])) if source is None else each[source])
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def cells_frame(release: BaseRelease, *, nonnegative: bool = False, width: int = 1) -> pd.DataFrame:
    """Return a row per cell, or per block of `width` cells a side: index, edges, centre, estimate and standard error.

    Columns: column, row, west, south, east, north, x, y, estimate, std_error; in 1-D column, low, high, x,
    estimate, std_error. As in the arrays, x varies slowest. Blocks begin in the south-west, and are narrower at the
    other rims. Their index is that of their first cell, `cells` their number of cells, and errors are of the sums.
    """
    import pandas as pd

    domain = release.domain
    starts = [np.arange(0, n, width) for n in domain.shape]
    index = np.stack(np.meshgrid(*starts, indexing="ij")).reshape(domain.ndim, -1)
    after = np.minimum(index + width, np.array(domain.shape)[:, None])
    low, high = (np.stack([domain.edges(axis)[at] for axis, at in enumerate(ends)]) for ends in (index, after))
    names = ["column", "row", "west", "south", "east", "north", "x", "y"]
    if domain.ndim == 1:
        names = ["column", "low", "high", "x"]
    table: dict[str, NDArray[Any]] = dict(zip(names, [*index, *low, *high, *(low + high) / 2], strict=True))
    if width == 1:
        cells, errors = release.estimates(nonnegative=nonnegative)
        table["estimate"], table["std_error"] = cells.ravel(), errors.ravel()
    else:
        # Estimates and errors do not depend on the level.
        found = release.answers(Boxes(np.concatenate([low, high]).T), level=0.95, nonnegative=nonnegative)
        table |= {"cells": (after - index).prod(axis=0), "estimate": found["estimate"], "std_error": found["std_error"]}
    return pd.DataFrame(table)


def geo_frame(release: BaseRelease, *, nonnegative: bool = False, width: int = 1) -> gpd.GeoDataFrame:
    """Return `cells_frame` with the cells' boxes as geometry, in the release's CRS, in place of their edges."""
    import geopandas as gpd
    import shapely

    if release.domain.ndim == 1:
        raise InputError("the release has one dimension, and so no geometry: use to_pandas()")
    frame = cells_frame(release, nonnegative=nonnegative, width=width)
    shapes = shapely.box(*(frame.pop(side).to_numpy() for side in ("west", "south", "east", "north")))
    return gpd.GeoDataFrame(frame, geometry=shapes, crs=release.domain.crs)


def dataset(release: BaseRelease, *, nonnegative: bool = False) -> xr.Dataset:
    """Return estimates and standard errors over the centres of the cells; dimensions y and x (x in 1-D)."""
    if importlib.util.find_spec("xarray") is None:
        raise InputError("to_xarray needs xarray, which is not installed: pip install 'deltahist[xarray]'")
    crs, dims = release.domain.crs, ["y", "x"][-release.domain.ndim :]
    # Maps run along y first, so that pictures of them are right side up.
    found = cells_frame(release, nonnegative=nonnegative).set_index(dims)[["estimate", "std_error"]].to_xarray()
    found["estimate"].attrs = {"units": "points", "long_name": f"points per cell, {release.estimator(nonnegative)}"}
    found["std_error"].attrs = {"units": "points", "long_name": "standard error; not to be added, nor its square"}
    for axis in dims:
        found[axis].attrs = {"units": "1" if crs is None else "map units"}
    return found.assign_attrs({} if crs is None else {"crs": crs})
