"""2014, Figure 4: shifted grids under δ-neighbourhood against the best equi-width histogram, by query size.

As in the paper, the baseline gets the best bin width for each query size, in hindsight. The shifted grids are one
release for all sizes. Their width is chosen before any data are seen: the one with the least mean square error
(geometric mean over the sizes from 0.02 on) on an artificial clustered set. The paper does not say which width it used.
ε = 1, membership is fixed, and noise is continuous Laplace noise of scale Δ = 2 and 4.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments._common import Found, command, print_table, text_of, write_csv
from experiments._figure4_plot import draw
from experiments._shifted import Prior, Shifted, averaged, least_squares
from experiments._squares import STAND_INS, WIDTHS, Floats, Squares, StandIn, equi_width

SIZES = (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25, 0.3)
#: Widths are chosen for sizes of at least this value.
LEAST = 0.02
#: Public knowledge about each set. People live in cities, whose sizes follow Zipf's law: over 30,000 cities the squared
#: shares add up to 1/72, as for about a hundred equal cities, and many people share one address. Indoors, a position is
#: known to within a few centimetres, a hundredth of the room.
PRIORS = {1: Prior(100), 2: Prior(100), 3: Prior(1000, length=0.01)}
AVERAGE, LEAST_SQUARES = "average", "least squares"
#: One histogram with the same decoder and prior, to separate the gain of the grids from the gain of the decoder.
PLAIN = "one histogram, least squares"


@dataclass(frozen=True)
class Trial:
    """A neighbourhood, a decoder, and the candidate widths on cells of one size.

    A single histogram costs 2 for every δ, so its δ is given as 0.
    """

    dataset: int
    delta: float
    decoder: str
    widths: tuple[float, ...]
    cell: float

    def grids(self, width: float) -> Shifted:
        """Return the grids of one width."""
        return Shifted(self.delta or width, width, self.cell)

    def errors(self, points: Floats, squares: Squares, width: float, scale: float = 1.0) -> Floats:
        """Return the mean square error per size, with the squared bias multiplied by `scale`."""
        grids = self.grids(width)
        if self.decoder == AVERAGE:
            bias, noise = averaged(points, squares, grids)
        else:
            bias, noise = least_squares(points, squares, grids, PRIORS[self.dataset])
        return scale * bias + noise

    def planned(self, squares: Squares) -> int:
        """Choose the width from public knowledge alone: the positions of the squares and the prior."""
        points, scale, own = _made_up(PRIORS[self.dataset], squares.sizes, len(squares.truth))
        counted = np.array(squares.sizes) >= LEAST
        score = [np.log(self.errors(points, own, w, scale)[counted]).mean() for w in self.widths]
        return int(np.argmin(score))


@functools.lru_cache(maxsize=4)
def _made_up(prior: Prior, sizes: tuple[float, ...], queries: int) -> tuple[Floats, float, Squares]:
    """Return the prior's artificial points, the weight of their squared bias, and the squares counted on them."""
    points, scale = prior.made_up()
    return points, scale, Squares.of(points, sizes, queries // len(sizes))


_FINE = (0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.012)
FULL = (
    *(Trial(d, 0.001, AVERAGE, _FINE, 0.001) for d in (1, 2)),
    *(Trial(d, 0.0001, AVERAGE, _FINE[:4], 0.0001) for d in (1, 2)),
    *(Trial(d, 0.001, LEAST_SQUARES, _FINE[1:6], 0.001) for d in (1, 2)),
    *(Trial(d, 0, PLAIN, _FINE, 0.001) for d in (1, 2)),
    Trial(3, 0.01, AVERAGE, (0.02, 0.03, 0.04), 0.005),
    Trial(3, 0.001, AVERAGE, _FINE, 0.001),
    Trial(3, 0.01, LEAST_SQUARES, (0.02, 0.03, 0.04), 0.005),
    Trial(3, 0.001, LEAST_SQUARES, (0.008, 0.01, 0.012), 0.001),
    Trial(3, 0, PLAIN, (0.005, 0.01, 0.015, 0.02), 0.005),
)
SMALL = (
    Trial(2, 0.0001, AVERAGE, (0.002, 0.003), 0.0001),
    Trial(3, 0.01, LEAST_SQUARES, (0.02, 0.03), 0.005),
    Trial(3, 0, PLAIN, (0.01, 0.02), 0.005),
)


def run(out: Path, small: bool) -> Found:
    """Compute the errors, and write figure4.csv and figure4.png."""
    trials, sizes, number = (SMALL, (0.02, 0.1, 0.3), 500) if small else (FULL, SIZES, 20_000)
    rows: list[dict[str, object]] = []
    for stand_in in STAND_INS:
        own = [t for t in trials if t.dataset == stand_in.dataset]
        if own:
            rows += _compare(stand_in, own, sizes, number)
    write_csv(out / "figure4.csv", rows)
    draw(rows, out / "figure4.png")
    return _summary(rows)


def _compare(
    stand_in: StandIn, trials: Sequence[Trial], sizes: Sequence[float], number: int
) -> list[dict[str, object]]:
    points = stand_in.points()
    squares = Squares.of(points, sizes, number)
    plain = np.array([sum(equi_width(points, squares, k)) for k in WIDTHS])
    rows: list[dict[str, object]] = []
    for trial in trials:
        found = np.array([trial.errors(points, squares, w) for w in trial.widths])
        chosen = trial.planned(squares)
        rows += _rows(stand_in.dataset, trial, squares.sizes, plain, found, chosen)
        print(f"\nstand-in for dataset {stand_in.dataset}, {stand_in.what}: {_name(trial.delta, trial.decoder)}")
        print_table([{k: r[k] for k in _SHOWN} for r in rows[-len(sizes) :]])
    return rows


def _name(delta: float, decoder: str) -> str:
    return f"δ = {delta:g}, {decoder}" if delta else decoder


_SHOWN = ("size", "best k", "best histogram", "width", "mse", "gain", "best width", "gain with hindsight")


def _rows(
    dataset: int, trial: Trial, sizes: Sequence[float], plain: Floats, found: Floats, chosen: int
) -> list[dict[str, object]]:
    grids = trial.grids(trial.widths[chosen])
    best, best_width = plain.min(axis=0), found.argmin(axis=0)
    return [
        {
            "dataset": dataset,
            "size": size,
            "best k": WIDTHS[int(plain[:, i].argmin())],
            "best histogram": round(float(best[i]), 2),
            "delta": trial.delta,
            "decoder": trial.decoder,
            "width": trial.widths[chosen],
            "grids": len(grids.strategy.starts),
            "sensitivity": grids.sensitivity,
            "mse": round(float(found[chosen, i]), 2),
            "gain": round(float(best[i] / found[chosen, i]), 3),
            "best width": trial.widths[int(best_width[i])],
            "gain with hindsight": round(float(best[i] / found[:, i].min()), 3),
        }
        for i, size in enumerate(sizes)
    ]


def _summary(rows: Sequence[dict[str, object]]) -> Found:
    """Return the least gain over the target sizes, for each trial."""
    found: Found = {}
    for key in dict.fromkeys((r["dataset"], r["delta"], r["decoder"]) for r in rows):
        part = [r for r in rows if (r["dataset"], r["delta"], r["decoder"]) == key]
        gains = {float(str(r["size"])): float(str(r["gain"])) for r in part}
        counted = [g for s, g in gains.items() if s >= LEAST]
        beaten = sum(g > 1 for g in counted)
        name = f"stand-in {key[0]}, {_name(float(str(key[1])), str(key[2]))}, width {part[0]['width']:g}"
        found[name] = (
            f"gain {text_of(min(counted))} to {text_of(max(counted))}, better at {beaten} of {len(counted)} sizes"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
