"""The numbers of a release as they are: one row each, with its noise and the box of cells that it counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from deltahist._files import form_of
from deltahist._progress import progress
from deltahist.errors import InputError, fits_memory
from deltahist.releases.base import BaseRelease
from deltahist.releases.forms import FileTable, save_layers
from deltahist.releases.histogram import Release
from deltahist.space.workloads.cover import box_sums
from deltahist.strategies.base import Strategy

if TYPE_CHECKING:
    import pandas as pd

#: Form of a file by its suffix.
FORMS = {".csv": "csv", ".parquet": "parquet"}
#: A set of cells passes for a box by chance once in so many times.
_CHANCE = 1 << 20
_COLUMNS = {
    "number": ("1", "place of the number in the release, from 0"),
    "group": ("", "its group, as the statement names it"),
    "value": ("", "noisy whole number, as published"),
    "law": ("", "law of its noise"),
    "noise_std": ("", "standard deviation of its noise, in units of value; empty where numbers share noise"),
    "weight": ("1", "value counts each point in its box so many times; empty where it is no sum over a box"),
    **{side: ("", f"{side} edge of the box") for side in ("west", "south", "east", "north", "low", "high")},
}


def check_tidy(path: str | Path, others: Sequence[str]) -> str:
    """Return the form that a file's suffix asks for; InputError on an unknown one, or with options about cells."""
    if others:
        raise InputError(f"--tidy is given with {' and '.join(others)}, which is about cells: leave one of them out")
    return form_of(path, FORMS)


def export_numbers(release: BaseRelease, path: str | Path, *, bar: bool | None = False) -> None:
    """Write the released numbers to a CSV or Parquet file, which says what they are as exported cells do.

    Parameters
    ----------
    release : of any kind that has numbers in a table. path : .csv or .parquet. bar : as for `export`.

    Raises
    ------
    InputError
        On another suffix, or a release without such numbers.
    """
    path, form = Path(path), check_tidy(path, ())
    with progress("looking at the numbers", 2, bar) as done:
        frame = numbers_frame(release)
        done(1)
        known = {name: dict(zip(("unit", "description"), _COLUMNS[name], strict=True)) for name in map(str, frame)}
        about = {
            "title": f"Numbers of a release as published: {release.mechanism.words}",
            "how_to_read": "No cells: each row is a noisy measurement. value / weight is an unbiased count of points "
            "in its box, with the standard error noise_std / weight. All of them together tell more: deltahist export.",
            "promise": release.mechanism.promise,
            "may_be_published": release.may_be_published,
            "digest": release.digest,
            "columns": known,
            "statement": release.statement(),
        }
        save_layers(path, form, [FileTable("numbers", frame, about)], release.domain)


def numbers_frame(release: BaseRelease) -> pd.DataFrame:
    """Return a row per released number: number, group, value, law, noise_std; of a map also weight and its box.

    The box is told from the strategy alone: a number that is no sum over a box, such as a difference, has none.
    """
    import pandas as pd

    columns, mechanism = release.columns(), release.mechanism
    if "value" not in columns:
        raise InputError(f"the release is {mechanism.words}: it has no table of numbers; `deltahist inspect` shows it")
    values, rows = columns["value"], mechanism.noise_rows()
    table: dict[str, Any] = {"number": np.arange(len(values)), "group": rows[0]["rows"], "value": values}
    if not isinstance(release, Release):
        return pd.DataFrame(table | {"law": rows[0]["law"], "noise_std": math.sqrt(mechanism.laws[0].variance())})
    strategy, group, domain = release.strategy, columns["group"], release.domain
    names = np.array([part.name for part in strategy.parts], dtype=object)
    table["group"] = pd.Categorical(names[group])
    # Numbers that share draws have noise that no law of one number tells.
    std = np.full(len(values), np.nan)
    for members, law in mechanism.noise_groups if strategy.row_by_row else ():
        std[members] = math.sqrt(law.variance())
    table |= {"law": pd.Categorical([rows[0]["law"]] * len(values)), "noise_std": std}
    table["weight"], ends = find_boxes(strategy)
    sides = [("low", "high")] if domain.ndim == 1 else [("west", "east"), ("south", "north")]
    known = ~np.isnan(table["weight"])
    for end in (0, 1):
        for axis, pair in enumerate(sides):
            table[pair[end]] = np.where(known, domain.edges(axis)[ends[end][axis]], np.nan)
    return pd.DataFrame(table)


def find_boxes(strategy: Strategy) -> tuple[NDArray[np.float64], list[NDArray[np.int64]]]:
    """Return how often each number counts the points of its box (k,), and the edges of that: first, last (ndim, k).

    A number that is no such sum counts them NaN times. From how many cells a row sums, and the mean and the variance of
    their places, follows which box it can only be; random weights of cells tell whether it is.
    """
    domain, d = strategy.domain, strategy.domain.ndim
    fits_memory(8 * (2 * d + 4) * sum(strategy.shape), f"looking at {strategy.shape[0]:,} numbers")
    places = np.indices(domain.shape).reshape(d, -1)
    chance = np.random.default_rng(1).integers(0, _CHANCE, domain.size)
    found = strategy.matmat(np.column_stack([np.ones_like(chance), *places, *places**2, chance])).astype(np.float64).T
    with np.errstate(all="ignore"):
        mean = found[1 : d + 1] / found[0]
        wide = np.rint(np.sqrt(1 + 12 * (found[d + 1 : -1] / found[0] - mean**2)))
        first = np.rint(mean - (wide - 1) / 2)
        weight = found[0] / wide.prod(axis=0)
        inside = (first >= 0) & (wide >= 1) & (first + wide <= np.array(domain.shape)[:, None])
    known = inside.all(axis=0)
    low, high = (np.where(known, each, 0).astype(np.int64) for each in (first, first + wide))
    sums = box_sums(chance.reshape(domain.shape).astype(np.float64), list(zip(low, high, strict=True)))
    return np.where(known & (sums * weight == found[-1]), weight, np.nan), [low, high]
