"""Districts that an operator serves along with the releases: their outlines, estimates and densities."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely
from numpy.typing import NDArray

from deltahist.answers import note_cut
from deltahist.errors import check_finite
from deltahist.plots.figures import region_areas
from deltahist.plots.maps import find_standing
from deltahist.releases.series import Difference
from deltahist.server.service import Source
from deltahist.space.domain import Domain
from deltahist.space.geometries import Fitted, add_names, fit, read_geometries, to_longitudes
from deltahist.space.workloads import regions

if TYPE_CHECKING:
    import geopandas as gpd


@dataclass(frozen=True, eq=False)
class Districts:
    """Districts with their names, in a column `name`, and shapes in any CRS."""

    frame: gpd.GeoDataFrame

    @classmethod
    def read(cls, file: Path, domain: Domain | None) -> Districts:
        """Read a file. GeoJSON is in degrees unless `domain` has no CRS. Raises InputError if the file is too large."""
        frame = add_names(read_geometries(file, domain, "--regions"))
        known = to_longitudes(frame, "--regions").geometry
        check_finite(least=1, **{"number of areas of --regions": int((shapely.get_dimensions(known) == 2).sum())})
        frame = frame.set_geometry(frame.geometry.where(shapely.get_dimensions(known) == 2))
        vertices = int(shapely.get_num_coordinates(frame.geometry.to_numpy()).sum())
        check_finite(most=200_000, **{"number of vertices of --regions": vertices})
        return cls(frame)

    @functools.cached_property
    def outlines(self) -> bytes:
        """The districts as GeoJSON, each with its name and a place for it."""
        frame = to_longitudes(self.frame, "--regions")
        places = frame.make_valid(method="structure").representative_point()
        frame = frame[["name"]].assign(x=places.x, y=places.y).set_geometry(frame.set_precision(1e-6, "pointwise"))
        return str(frame.to_json(drop_id=True)).encode()

    def answer(self, source: Source, level: float, nonnegative: bool) -> dict[str, Any]:
        """Return the columns of `dh.answer`, densities, and whether each district stands out from the noise."""
        fitted, areas = _fit(self, source.domain)
        work = regions(fitted.shapes[fitted.held])
        found = source.answer_workload(work, level=level, nonnegative=nonnegative)
        unbiased = found if not nonnegative else source.answer_workload(work, level=level, nonnegative=False)
        sides = {"either_side": isinstance(source, Difference)}
        standing = find_standing(source, work, unbiased["estimate"], unbiased["std_error"], **sides)
        columns = fitted.spread_over_regions(found | {"density": found["estimate"] / areas, "stands_out": standing})
        lists = {name: each.tolist() if each.dtype == object else each for name, each in note_cut(columns).items()}
        lists["stands_out"] = columns["stands_out"] == 1  # False for districts without an answer
        return {"name": self.frame["name"].tolist()} | lists


@functools.lru_cache(maxsize=16)
def _fit(districts: Districts, domain: Domain) -> tuple[Fitted, NDArray[np.float64]]:
    """Return districts clipped to a map, and the areas of those that can be answered."""
    fitted = fit(districts.frame.geometry, domain, districts.frame.crs)
    return fitted, region_areas(domain, fitted.shapes[fitted.held])
