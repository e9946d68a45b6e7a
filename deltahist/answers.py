"""Answer queries from a release, with a standard error and an interval for each estimate."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deltahist.decode import check_level, interval
from deltahist.errors import DeltaHistWarning, InputError
from deltahist.releases import BaseRelease, Release, Series
from deltahist.releases.series import Difference
from deltahist.space.crs import LONGITUDE_LATITUDE
from deltahist.space.domain import Domain
from deltahist.space.geometries import boxes_in_degrees, fit
from deltahist.space.workloads import Regions, Workload, boxes, regions

if TYPE_CHECKING:
    import geopandas as gpd
    import pandas as pd

    from deltahist.remote import RemoteRelease

#: Answer columns (m,) by name.
Columns: TypeAlias = dict[str, NDArray[Any]]
#: All columns that answers may have. Region columns with these names are renamed.
COLUMNS = (
    *("rank", "step", "before", "after", "estimate", "std_error", "low", "high"),
    *("noise_error", "placement_error", "cut"),
    *("inner", "outer", "steps", "unresolved", "estimator", "outside", "note"),
)


def answer(
    release: BaseRelease | Series | Difference | RemoteRelease,
    workload: Workload | Any,
    *,
    level: float = 0.95,
    nonnegative: bool = False,
    simultaneous: bool = False,
) -> pd.DataFrame:
    """Answer a workload from a release. The stated errors include all noise.

    Noise does not bias the answers unless `nonnegative` is set. Queries that cut cells rely on an assumption about the
    positions of points within cells (docs/internals/placement.md).

    Parameters
    ----------
    release : a release, a `Series` (answered by the sum over its steps, or the mean per step), the change between two
        series (`Difference`), or a release behind a service (`dh.connect`).
    workload : a `Workload` on the map; box corners of shape (m, 4), or (m, 2) on a line; shapely geometries in the
        release's coordinates; or a GeoSeries or GeoDataFrame in any CRS. Geometries are clipped to the map, and
        repaired if necessary. Boxes that are clearly in degrees are projected.
    level : confidence level of the interval, between 0 and 1.
    nonnegative : answer from non-negative cells (`Release.cells`). Such answers are biased, but usually closer to the
        truth. Their intervals are those of the unbiased answers, clipped to possible counts and widened to include the
        estimate. In a series, only the sum is made non-negative, not each step.
    simultaneous : whether all m intervals together contain the true values with probability `level`. Each then has
        the level 1 − (1 − level)/m (Bonferroni), however the answers are correlated.

    Returns
    -------
    DataFrame with one row per query. Numbers are in points. A GeoDataFrame keeps its rows, columns, index and CRS, but
    columns with the names below get the suffix "_region". Answers from sorted points have only the first four columns
    (see `SortedRelease.count_between`).

    - `estimate` : the sum of whole cells and of the covered shares of cut cells. A share is adjusted slightly if
      neighbouring cells are denser on one side.
    - `std_error` : the standard error from noise and from unknown positions in cut cells.
    - `low`, `high` : the interval. If a query contains no whole cell, it may be centred on a known point, so its
      interval extends further above the estimate than below.
    - `noise_error`, `placement_error` : the parts of `std_error`, if any query cuts cells.
    - `cut` : the share of the query's area in cut cells. `inner`, `outer` : the answers if all points of these cells
      lay outside the query (`inner`) or inside it (`outer`).
    - `steps` : the number of steps in the answer from a series. A change has `before` and `after` instead of `inner`
      and `outer`.
    - `unresolved` : the share of the query's squared norm that was not measured, if the strategy does not determine
      every cell. If it is above 0, the error can be larger than stated.
    - `estimator` : the method that made the estimates non-negative.
    - `outside` : the share of the geometry's area outside the map, if any. The other columns describe the part inside.
    - `note` : a remark if a geometry was clipped, repaired or mostly in cut cells, or why it has no answer.

    Raises InputError if a query is reversed, empty or outside the domain, if no geometry can be answered, if steps of a
    series are missing, or if `nonnegative` is set for a change. Warns about boxes in degrees, renamed columns, and
    geometries that are clipped, repaired or not answered.

    >>> import deltahist as dh, numpy as np
    >>> domain = dh.Domain((0, 1), (4,))
    >>> near = dh.Neighbourhood(domain, delta=0.25)
    >>> release = dh.publish(np.array([5, 0, 3, 2]), near, epsilon=1.0)
    >>> dh.answer(release, dh.workloads.boxes([[0, 1]]))["estimate"].tolist()      # the total is public
    [10.0]
    """
    check_level(level)
    asked, framed = read_workload(workload, release.domain)
    if simultaneous:
        level = 1 - (1 - level) / max(1, len(asked))
    return framed(release.answer_workload(asked, level=level, nonnegative=nonnegative))


def covariance(release: Release, workload: Workload | Any) -> NDArray[np.float64]:
    """Return the (m, m) covariance matrix C of the noise in the answers to a workload, in squared points.

    Its diagonal holds the squared noise errors of `answer`, or less where those are bounds. A weighted sum wᵀx of
    answers x has noise variance wᵀ C w. Errors from positions inside cut cells are not included. For parameters, see
    `answer`.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), delta=1)
    >>> release = dh.publish(np.array([5, 0, 3, 2]), near, "identity", epsilon=1.0)
    >>> covariance(release, [[0, 2], [2, 4]]).round(1).tolist()      # the total is public, so they differ in sign only
    [[7.8, -7.8], [-7.8, 7.8]]
    """
    asked, _ = read_workload(workload, release.domain)
    return release.decoder.covariance(asked.matrix(release.domain))


def make_answerer(
    domain: Domain, workload: Workload | Any, *, level: float = 0.95, nonnegative: bool = False
) -> Callable[[BaseRelease | Series], pd.DataFrame]:
    """Return a function that answers a workload from any release on a domain. For parameters, see `answer`."""
    check_level(level)
    asked, framed = read_workload(workload, domain)
    return lambda release: framed(release.answer_workload(asked, level=level, nonnegative=nonnegative))


def answer_each(
    series: Series, workload: Workload | Any, *, level: float = 0.95, nonnegative: bool = False
) -> pd.DataFrame:
    """Answer a workload from every step of a series, in order. For parameters, see `answer`, which sums over steps.

    Returns
    -------
    DataFrame with a row for each step and query, a column `step` with the step's name, and the columns of `answer`. A
    missing step has rows of NaN, or no rows after `Series.skip_missing`.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 4), (4,)), 1)
    >>> from deltahist.preprocessing import Clock
    >>> days = {step: dh.publish(np.full(4, 5), near, "identity", 1.0) for step in (0, 2)}
    >>> series = dh.Series(Clock.of("2010-05-01", "1d"), 0, 2, days)
    >>> answer_each(series, [[0, 4]])[["step", "estimate"]].to_numpy().tolist()
    [['2010-05-01', 20.0], ['2010-05-02', nan], ['2010-05-03', 20.0]]
    """
    import pandas as pd

    check_level(level)
    asked, framed = read_workload(workload, series.domain)
    found = {step: each.answer_workload(asked, level=level, nonnegative=nonnegative) for step, each in series if each}
    empty = {name: np.full(len(each), np.nan) for name, each in next(iter(found.values())).items()}
    steps = list(found) if series.skipping else series.step_labels
    out = pd.concat([framed(found.get(step, empty)).assign(step=step) for step in steps])
    out.insert(0, "step", out.pop("step"))
    return out.reset_index(drop=True)


def rank(release: Release, workload: Workload | Any, *, level: float = 0.95) -> pd.DataFrame:
    """Answer a workload, and add a column `rank` with the possible ranks of each answer.

    A rank is "1" for the largest answer, or a range such as "2 to 5" for answers that cannot be distinguished. With
    probability `level`, all ranges contain the true ranks. Each pair of answers is compared by the exact error of the
    difference between them, with a Bonferroni correction. The strategy must determine every cell.

    >>> import deltahist as dh, numpy as np
    >>> near = dh.Neighbourhood(dh.Domain((0, 3), (3,)), delta=1)
    >>> release = dh.publish(np.array([3, 900, 1]), near, epsilon=1.0, rng=np.random.default_rng(1))
    >>> rank(release, [[0, 1], [1, 2], [2, 3]])["rank"].tolist()
    ['2 to 3', '1', '2 to 3']
    """
    check_level(level)
    if not isinstance(release, Release) or release.strategy.determines_cells is not True:
        raise InputError("ranking requires one release of counts, with a strategy that determines every cell")
    asked, framed = read_workload(workload, release.domain)
    found, rows = release.answer_workload(asked, level=level, nonnegative=False), asked.matrix(release.domain)
    estimate = found["estimate"]
    # Placement errors of two answers may be correlated, so add the errors, not their variances.
    placed, number = found.get("placement_error", np.zeros(len(estimate))), len(estimate)
    share = 1 - (1 - level) / max(1, math.comb(number, 2))
    above, below = np.zeros((2, number), dtype=np.int64)
    for one in range(number - 1):
        others = slice(one + 1, number)
        noise = release.decoder.moments(rows[[one] * (number - one - 1)] - rows[others])
        _, reach = interval(noise.and_normal((placed[one] + placed[others]) ** 2), release.laws[0], share)
        more = estimate[others] - estimate[one]
        above[one] += (more > reach).sum()
        below[one] += (-more > reach).sum()
        above[others] += -more > reach
        below[others] += more > reach
    ends = zip((above + 1).tolist(), (number - below).tolist(), strict=True)
    ranks = [f"{first} to {last}" if first < last else f"{first}" for first, last in ends]
    return framed({"rank": np.array(ranks, dtype=object), **found})


def read_workload(workload: Any, domain: Domain) -> tuple[Workload, Callable[[Columns], pd.DataFrame]]:
    """Return a workload on the domain, and a function that turns its answers into a frame."""
    import pandas as pd

    if isinstance(workload, Regions):
        names = pd.Index(workload.names, name="region")
        return workload, lambda found: pd.DataFrame(note_cut(found), names)
    if isinstance(workload, Workload):
        return workload, pd.DataFrame
    shapes, crs = _shapes(workload)
    if shapes is None:
        corners = np.atleast_2d(np.asarray(workload, dtype=np.float64))
        shapes, crs = boxes_in_degrees(corners, domain), LONGITUDE_LATITUDE
        if shapes is None:
            return boxes(corners), pd.DataFrame
    index = pd.Index(map(str, range(len(shapes))), name="region")
    fitted = fit(shapes, domain, crs)
    frame = _own(workload) if hasattr(workload, "columns") else None

    def framed(found: Columns) -> pd.DataFrame:
        columns = note_cut(fitted.spread_over_regions(found))
        # Select by position, because an index may have duplicates.
        return pd.DataFrame(columns, index) if frame is None else frame.assign(**columns)

    held = np.flatnonzero(fitted.held)
    return regions(fitted.shapes[held], [str(number) for number in held]), framed


def note_cut(columns: Columns) -> Columns:
    """Add a note to each answer whose query lies mostly in cut cells."""
    percent = np.rint(100 * columns.get("cut", np.zeros(0)))
    mostly = np.flatnonzero(percent > 50)
    if not len(mostly):
        return columns
    texts = [f"{share}% of its area lies in cut cells, where positions are assumed" for share in range(101)]
    notes = columns.get("note", np.full(len(percent), None)).copy()
    pairs = zip(notes[mostly], percent[mostly].astype(int), strict=True)
    notes[mostly] = ["; ".join(filter(None, (own, texts[share]))) for own, share in pairs]
    return columns | {"note": notes}


def _shapes(workload: Any) -> tuple[Any, Any]:
    """Return a workload's m geometries and their CRS, or (None, None) if the workload consists of box corners."""
    if isinstance(workload, np.ndarray) and workload.dtype.kind in "if" and workload.size:
        return None, None
    # A frame without geometries fails here, because its columns may not be in the order of box corners.
    if hasattr(workload, "columns") or (hasattr(workload, "geometry") and hasattr(workload, "crs")):
        return workload.geometry, workload.crs
    if hasattr(workload, "geom_type") and not hasattr(workload, "__len__"):
        workload = [workload]  # one geometry
    items = list(workload) if hasattr(workload, "__iter__") else []
    shapes = any(hasattr(item, "geom_type") for item in items)
    if shapes and all(item is None or hasattr(item, "geom_type") for item in items):
        return items, None
    return None, None


def rename_own(names: Iterable[Any]) -> dict[Any, str]:
    """Return new names for region columns that share a name with an answer column."""
    own: dict[Any, str] = {}
    taken = set(names := list(names))
    for name in names:
        if str(name).lower() in COLUMNS:
            own[name] = f"{name}_region"
            while own[name] in taken:
                own[name] += "_region"
    return own


def _own(frame: gpd.GeoDataFrame) -> gpd.GeoDataFrame:
    """Rename the columns of a frame that share a name with an answer column."""
    own = rename_own(frame.columns)
    if own:
        warnings.warn(
            f"columns of regions were renamed: {', '.join(f'{old} to {new}' for old, new in own.items())}",
            DeltaHistWarning,
            stacklevel=4,
        )
    return frame.rename(columns=own).set_geometry(own.get(frame.geometry.name, frame.geometry.name))
