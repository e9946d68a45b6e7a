"""The demonstration: a made-up city, from a table of visits to a release, answers and a map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deltahist.domain.operations import Operation
from deltahist.errors import InputError
from deltahist.sample import sample_points

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

#: W,S,E,N in metres of EPSG:32618; the whole sample lies inside.
BOUNDS = "578000,4501000,593000,4518000"
#: Queries of the demonstration.
PLACES = {
    "the centre, 3 km": (583700, 4507500, 586700, 4510500),
    "west bank": (578000, 4501000, 583000, 4518000),
    "one block, 500 m": (585000, 4509000, 585500, 4509500),
    "cells cut in half": (584125, 4508125, 586125, 4510125),
    "north-east corner": (591000, 4516000, 593000, 4518000),
}


def show(folder: Path, run: Callable[[Sequence[str]], Any]) -> None:
    """Make the demonstration's files in a folder and say what they are.

    Parameters
    ----------
    folder : made if it does not exist; files of an earlier demonstration are replaced.
    run : runs one command line, such as ["inspect", "city.parquet"], and returns what it returns.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise InputError(f"--out is {str(folder)!r}: that is a file, it must be a folder") from None
    visits, city, picture = (folder / name for name in ("visits.csv", "city.parquet", "city.png"))
    sample = sample_points()
    sample.to_csv(visits, index=False)
    print(
        f"A made-up city: {len(sample):,} visits of {sample['user'].nunique():,} invented users, in {visits}"
    )

    publish = ["publish", str(visits), "--x", "lon", "--y", "lat", "--user", "user", "--max-per-user", "5"]
    publish += ["--crs", "EPSG:4326", "--project", "EPSG:32618", "--bounds", BOUNDS]
    publish += ["--cell", "250m", "--delta", "500m", "--epsilon", "1", "--out", str(city)]
    release, counted = _run(run, publish)
    _run(run, ["inspect", str(city)])
    _compare(release, counted.counts, sample)
    _run(run, ["plot", str(city), "--out", str(picture)])
    box = ",".join(map(str, PLACES["the centre, 3 km"]))
    print(f"\nLook at {picture}. Then try:")
    print(f"  deltahist query {city} --box {box} --format json")
    print(f"  deltahist export {city} --out {folder / 'cells.geojson'}")
    print("  deltahist publish --help      # the same with your own file")


def _run(run: Callable[[Sequence[str]], Any], arguments: Sequence[str]) -> Any:
    """Show a command line, then run it."""
    lines, line = [], "\n$ deltahist"
    for word in arguments:
        if len(line) + len(word) > 100 and word.startswith("--"):
            lines.append(line)
            line = "     "
        line += f" {word}"
    print(" \\\n".join([*lines, line]), flush=True)
    return run(arguments)


def _compare(release: Any, kept: NDArray[np.int64], sample: pd.DataFrame) -> None:
    """Answers beside the truth, which is only known because the city is made up."""
    from deltahist.answers import answer
    from deltahist.decode import box_sums
    from deltahist.workloads import boxes

    places = {"whole map": release.domain.bounds, **PLACES}
    work = boxes(list(places.values()))
    frame = answer(release, work)
    truth = box_sums(kept.astype(np.float64), work.spans(release.domain))
    everyone = _visits_within(release, sample, places.values())
    print(
        "\nAnswers from the release, beside the truth, which is known here only because the city is made up.\n"
        "The release is about the visits that were kept, at most 5 of each user.\n"
    )
    print(f"{'':20}{'estimate':>10}{'95% interval':>20}{'kept visits':>13}{'all visits':>12}")
    for name, row, true, whole in zip(places, frame.itertuples(), truth, everyone, strict=True):
        interval = f"{row.low:,.0f} to {row.high:,.0f}"
        print(f"{name:20}{row.estimate:>10,.0f}{interval:>20}{true:>13,.0f}{whole:>12,}")


def _visits_within(release: Any, sample: pd.DataFrame, places: Iterable[Sequence[float]]) -> list[int]:
    """All visits in each place, before any bounding of users."""
    x, y = Operation.off(release.domain, "EPSG:4326").back(sample["lon"].to_numpy(), sample["lat"].to_numpy())
    return [int(((x >= w) & (x < e) & (y >= s) & (y < n)).sum()) for w, s, e, n in places]
