"""`python -m datasets`: write the stand-ins as Parquet files, or draw them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from datasets.indoor import indoor_like
from datasets.twitter import twitter_like_north_america, twitter_like_world

STAND_INS: dict[str, Callable[[int], np.ndarray]] = {
    "twitter_like_world": twitter_like_world,
    "twitter_like_north_america": twitter_like_north_america,
    "indoor_like": indoor_like,
}
_EVERY = 20  # --small keeps every twentieth point
_FORMATS = (".png", ".pdf", ".svg")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.out is None and chosen.picture is None:
        parser.error("nothing to do: give --out DIR, --picture FILE or both")
    if chosen.picture is not None and chosen.picture.suffix not in _FORMATS:
        parser.error(f"--picture {chosen.picture}: the name must end in {', '.join(_FORMATS)}")
    try:
        if chosen.out is not None:
            write(chosen.out, chosen.seed, _EVERY if chosen.small else 1)
        if chosen.picture is not None:
            from datasets.picture import draw

            draw(chosen.picture, chosen.seed)
            print(f"{chosen.picture}: stand-ins for the three data sets of Figure 3")
    except OSError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


def write(folder: Path, seed: int = 2014, every: int = 1) -> None:
    """Write each stand-in as a Parquet file with columns x and y in [0, 1), and print its name and size."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in STAND_INS.items():
        file = folder / f"{name}.parquet"
        points = make(seed)[::every]
        _save(points, file)
        print(f"{file}: stand-in, {len(points):,} points, {file.stat().st_size / 1e6:.1f} MB")


def _save(points: np.ndarray, file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    x, y = np.ascontiguousarray(points.T)
    pq.write_table(pa.table({"x": x, "y": y}), file)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m datasets",
        description="Made-up stand-ins shaped like the three data sets of the 2014 paper.",
        epilog="example: python -m datasets --out /tmp/points --small --picture figure3.png",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write the three stand-ins to this folder as Parquet with columns x, y"
    )
    parser.add_argument("--small", action="store_true", help="with --out: keep only every twentieth point")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the three panels of Figure 3")
    parser.add_argument("--seed", type=int, default=2014, help="seed of the stand-ins (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
