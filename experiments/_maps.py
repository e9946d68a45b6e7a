"""Maps of counts to measure on: public histograms, stand-ins, and invented ones that no constant was set on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import datasets
import deltahist as dh
from deltahist.errors import InputError
from experiments.compare_2d import read_counts
from experiments.districts import projected
from experiments.series_places import HIGH, LOW

Counts = NDArray[np.int64]

#: Histograms within the folder of public data, and the check-ins.
HISTOGRAMS = {
    "Twitter": "dpbench_2d_hist/twitter_256_256.npy",
    "cabs": "dpbench_2d_hist/cabspottingS_256_256.npy",
}
CHECK_INS = "gowalla_nyc/gowalla_events.tsv.gz"
STAND_INS = {
    "stand-in, world": datasets.twitter_like_world,
    "stand-in, North America": datasets.twitter_like_north_america,
    "stand-in, indoors": datasets.indoor_like,
}
SEED = 20260817


def public(folder: Path, side: int) -> Iterator[tuple[str, Counts]]:
    """Counts of `side` × `side` cells of the public data sets in a folder; those that are not there are left out.

    Raises InputError if none is there.
    """
    files = {name: folder / file for name, file in (HISTOGRAMS | {"check-ins": CHECK_INS}).items()}
    found = {name: file for name, file in files.items() if file.is_file()}
    if not found:
        listed = ", ".join(str(file.relative_to(folder)) for file in files.values())
        raise InputError(f"--data {str(folder)!r} holds none of {listed}: it must be the folder above them")
    for name, file in found.items():
        yield name, check_ins(file, side) if name == "check-ins" else read_counts(file, side)


def check_ins(file: Path, side: int) -> Counts:
    """Check-ins in New York, on a map of 50 × 52 km; who is outside is left out."""
    frame = pd.read_csv(file, sep="\t", header=None)
    points = projected(frame[3], frame[2], 32618)
    within = ((points > LOW) & (points < HIGH)).all(axis=1)
    return np.asarray(dh.count(points[within], dh.Domain((*LOW, *HIGH), (side, side))))


def stand_ins(side: int) -> Iterator[tuple[str, Counts]]:
    """Counts of the made-up points that stand in for the 2014 paper's data sets."""
    for name, made in STAND_INS.items():
        yield name, np.asarray(dh.count(made(), dh.Domain((0, 0, 1, 1), (side, side))))


def dense(side: int, rng: np.random.Generator) -> Counts:
    """Waves of 150 to 750 points a cell."""
    wave = np.sin(np.linspace(0, 3 * np.pi, side))
    return rng.poisson(450 + 300 * np.multiply.outer(wave, np.cos(np.linspace(0, 3 * np.pi, side))))


def singletons(side: int, rng: np.random.Generator) -> Counts:
    """A point in every twentieth cell, anywhere."""
    return rng.poisson(0.05, (side, side))


def roads(side: int, rng: np.random.Generator) -> Counts:
    """Five busy lines one way, five less busy ones the other way, hardly anybody elsewhere."""
    counts = rng.poisson(0.02, (side, side))
    counts[rng.choice(side, 5, replace=False)] += rng.poisson(5, (5, side))
    counts[:, rng.choice(side, 5, replace=False)] += rng.poisson(20, (side, 5))
    return counts


def one_cell(side: int, rng: np.random.Generator) -> Counts:
    """All 50,000 points in one cell."""
    counts = np.zeros((side, side), dtype=np.int64)
    counts[tuple(rng.integers(0, side, 2))] = 50_000
    return counts


def cities(side: int, rng: np.random.Generator) -> Counts:
    """Thirty round cities; few are large, and they are as wide as 1 to 12 of 128 cells."""
    x, y = np.mgrid[:side, :side]
    mean = np.zeros((side, side))
    for _ in range(30):
        (i, j), wide = rng.integers(0, side, 2), side / 128 * rng.uniform(0.5, 6)
        mean += 100 * rng.pareto(1.5) * np.exp(-((x - i) ** 2 + (y - j) ** 2) / (2 * wide**2))
    return rng.poisson(mean)


_INVENTED: dict[str, Callable[[int, np.random.Generator], Counts]] = {
    "dense and smooth": dense,
    "sparse singletons": singletons,
    "thin roads": roads,
    "one full cell": one_cell,
    "round cities": cities,
}


def invented(side: int) -> Iterator[tuple[str, Counts]]:
    """Counts that are drawn at random, the same every time."""
    for name, made in _INVENTED.items():
        yield name, made(side, np.random.default_rng(SEED))
