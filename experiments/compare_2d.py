"""Range queries on a 2-D histogram: ours under δ-neighbourhood against published mechanisms under any move.

All mechanisms answer the same random rectangles (uniform over all ranges) of one histogram, whose total is public. The
neighbour relations differ, and are named: `delta` protects moves of up to δ cells, `any` moves of any length. A peer's
guarantee does not depend on δ, which is why its line in the picture is flat. `pure` is ε-differential privacy, `approx`
(ε, 10⁻⁶). Non-negative decoding is post-processing: peers that are linear get it as well, and are listed both ways.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import deltahist as dh
from deltahist.decode import box_sums, nonnegative, simulated_metric
from deltahist.errors import InputError
from deltahist.mechanisms.calibration import rho_for
from deltahist.strategies import Spectral, Strategy, tuned
from experiments._common import figure, print_table, save
from experiments.peers import LINEAR, PEERS, STRATEGIES, Peer

PROBABILITY = 1e-6
QUERIES, TRIALS, SEED = 5000, 10, 20150331

Counts = NDArray[np.int64]
Cells = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """One mechanism, measured: RMSE per query in points, and seconds per release with its decoding."""

    mechanism: str
    family: str
    relation: str
    delta_cells: int | None
    privacy: str
    epsilon: float
    rmse: float
    seconds: float


@dataclass(frozen=True, eq=False)
class Contest:
    """The histogram, the rectangles and the budget that all mechanisms share."""

    counts: Counts
    epsilon: float
    queries: int = QUERIES
    trials: int = TRIALS

    @functools.cached_property
    def domain(self) -> dh.Domain:
        """One unit per cell."""
        return dh.Domain((0, 0, *self.counts.shape), self.counts.shape)

    @functools.cached_property
    def spans(self) -> Any:
        """The rectangles, in cells."""
        return dh.workloads.all_ranges(self.domain).sample(self.queries, SEED).spans(self.domain)

    def near(self, delta: float) -> dh.Neighbourhood:
        """Moves of up to so many cells, with a public number of points."""
        return dh.Neighbourhood(self.domain, delta)

    def measure(self, run: Callable[[np.random.Generator], Cells]) -> tuple[float, float]:
        """RMSE over all trials, and seconds per trial."""
        truth = box_sums(self.counts.astype(np.float64), self.spans)
        squares = []
        start = time.perf_counter()
        for trial in range(self.trials):
            cells = run(np.random.default_rng([SEED, trial]))
            squares.append(((box_sums(cells, self.spans) - truth) ** 2).mean())
        seconds = (time.perf_counter() - start) / self.trials
        return float(np.sqrt(np.mean(squares))), seconds


def ours(contest: Contest, deltas: Sequence[int]) -> Iterator[Result]:
    """Flows at pure ε, spectral strategies at (ε, 10⁻⁶), each decoded both ways, for every δ."""
    for delta in deltas:
        near = contest.near(delta)
        flow = tuned(near)
        yield from _linear(contest, "flow", flow, near, ("ours", "delta", delta, "pure"))
        spectral = Spectral(near)
        yield from _linear(contest, "spectral", spectral, near, ("ours", "delta", delta, "approx"))


def peers(contest: Contest) -> Iterator[Result]:
    """The published mechanisms under any move; the Gaussian optimum among them as the approximate one."""
    anywhere = contest.near(1).anywhere()
    for name, make in STRATEGIES.items():
        yield from _linear(contest, name, make(contest.domain), anywhere, ("peer", "any", None, "pure"))
    for name, peer in PEERS.items():
        yield from _peer(contest, name, peer)
    optimum = Spectral(anywhere)
    yield from _linear(contest, "Gaussian optimum", optimum, anywhere, ("peer", "any", None, "approx"))


def _linear(
    contest: Contest,
    name: str,
    strategy: Strategy,
    near: dh.Neighbourhood,
    kind: tuple[str, str, int | None, str],
) -> Iterator[Result]:
    budget: dict[str, Any] = {"epsilon": contest.epsilon}
    if kind[3] == "approx":
        budget = {"rho": rho_for(strategy, near, epsilon=contest.epsilon, probability=PROBABILITY)}

    def run(rng: np.random.Generator, *, nonnegative: bool) -> Cells:
        release = dh.publish(contest.counts, near, strategy, rng=rng, **budget)
        return release.cells(nonnegative=nonnegative)

    for suffix, positive in (("", False), (", non-negative", True)):
        rmse, seconds = contest.measure(functools.partial(run, nonnegative=positive))
        yield Result(name + suffix, *kind, contest.epsilon, rmse, seconds)


def _peer(contest: Contest, name: str, peer: Peer) -> Iterator[Result]:
    def run(rng: np.random.Generator) -> Cells:
        return peer(contest.counts, contest.epsilon, rng=rng)

    peer(
        contest.counts, contest.epsilon, rng=np.random.default_rng(0)
    )  # strategies are optimised once, untimed
    kind = ("peer", "any", None, "pure")
    rmse, seconds = contest.measure(run)
    yield Result(name, *kind, contest.epsilon, rmse, seconds)
    if name not in LINEAR:
        return
    total, size, rng = int(contest.counts.sum()), contest.counts.size, np.random.default_rng(SEED)

    def centred(cells: Cells, whole: int) -> Cells:
        return cells + (whole - cells.sum()) / size

    def noise() -> Cells:
        return centred(peer(np.zeros_like(contest.counts), contest.epsilon, rng=rng), 0)

    metric = simulated_metric(noise, contest.counts.shape, total_known=True)
    rmse, seconds = contest.measure(lambda rng: nonnegative(centred(run(rng), total), metric, total).cells)
    yield Result(f"{name}, non-negative", *kind, contest.epsilon, rmse, seconds)


def read_counts(file: Path, side: int | None = None) -> Counts:
    """A square histogram of whole numbers from an NPY file, summed down to `side` cells a side if that is given.

    Raises InputError if the file holds something else.
    """
    try:
        array = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as problem:
        raise InputError(f"--data {str(file)!r} is not a readable NPY file: {problem}") from None
    if array.ndim != 2 or min(array.shape) < 2:
        raise InputError(f"--data {str(file)!r} has shape {array.shape}: it must be a 2-D histogram")
    if not np.isfinite(array).all() or (array < 0).any() or (array != np.rint(array)).any():
        raise InputError(f"--data {str(file)!r} must hold counts: whole numbers, none negative")
    counts = array.astype(np.int64)
    if side is None:
        return counts
    if any(n % side for n in counts.shape):
        raise InputError(f"--side is {side}: it must divide the histogram's sides {counts.shape}")
    x, y = (n // side for n in counts.shape)
    return counts.reshape(side, x, side, y).sum(axis=(1, 3))


def verdict(results: Sequence[Result]) -> list[dict[str, Any]]:
    """For every δ our best against the best peer: of either privacy, and among approximate ones."""
    rows = []
    best_pure = min((r for r in results if r.family == "peer" and r.privacy == "pure"), key=lambda r: r.rmse)
    best_any = min((r for r in results if r.family == "peer" and r.privacy == "approx"), key=lambda r: r.rmse)
    for delta in sorted({r.delta_cells for r in results if r.delta_cells is not None}):
        own = [r for r in results if r.delta_cells == delta]
        pure = min((r for r in own if r.privacy == "pure"), key=lambda r: r.rmse)
        approx = min((r for r in own if r.privacy == "approx"), key=lambda r: r.rmse)
        rows.append(
            {
                "delta in cells": delta,
                "our pure": pure.rmse,
                "our approx": approx.rmse,
                f"best pure peer ({best_pure.mechanism})": best_pure.rmse,
                "our better / it": min(pure.rmse, approx.rmse) / best_pure.rmse,
                "our pure / it": pure.rmse / best_pure.rmse,
                f"best approx peer ({best_any.mechanism})": best_any.rmse,
                "our approx / it": approx.rmse / best_any.rmse,
            }
        )
    return rows


def draw(results: Sequence[Result], file: Path) -> None:
    """RMSE against δ: one line per mechanism, peers flat, labelled at the right end."""
    drawn = figure(9.5, 6)
    axes = drawn.subplots()
    deltas = sorted({r.delta_cells for r in results if r.delta_cells is not None})
    names = sorted({(r.mechanism, r.privacy) for r in results if r.family == "ours"})
    colours = {"pure": "#1f5fa8", "approx": "#e07b00"}
    labels: list[tuple[float, str, str]] = []
    for name, privacy in names:
        own = {r.delta_cells: r.rmse for r in results if (r.mechanism, r.privacy) == (name, privacy)}
        style = "-" if "non-negative" in name else "--"
        axes.plot(deltas, [own[d] for d in deltas], style, color=colours[privacy], marker="o", lw=2)
        labels.append((own[deltas[-1]], f"{name} ({_budget(privacy)})", colours[privacy]))
    for r in results:
        if r.family == "peer":
            colour = "#6f6f6f" if r.privacy == "pure" else "#b98b4f"
            axes.axhline(r.rmse, color=colour, lw=0.9, ls="-" if "non-negative" in r.mechanism else ":")
            labels.append((r.rmse, f"{r.mechanism} (any move, {_budget(r.privacy)})", colour))
    axes.set(xscale="log", yscale="log", xlabel="δ (cells)", ylabel="RMSE of a random rectangle (points)")
    axes.set_xticks(deltas, [str(d) for d in deltas])
    axes.minorticks_off()
    low, high = (f(r.rmse for r in results) for f in (min, max))
    ticks = [t for t in (5, 10, 20, 50, 100, 200, 500, 1000, 2000) if low / 1.5 < t < high * 1.5]
    axes.set_yticks(ticks, [str(t) for t in ticks])
    axes.set_ylim(low / 1.15, high * 1.15)
    axes.set_title("Ours protects moves of up to δ, the others moves of any length")
    _place(axes, labels)
    save(drawn, file)


def _budget(privacy: str) -> str:
    return "pure ε" if privacy == "pure" else "(ε, 10⁻⁶)"


def _place(axes: Any, labels: Sequence[tuple[float, str, str]]) -> None:
    """Labels to the right of the axes, moved apart where they would overlap."""
    from scipy.optimize import isotonic_regression

    low, high = np.log(axes.get_ylim())
    ordered = sorted(labels)
    steps = np.arange(len(ordered)) / 30
    height = (np.log([value for value, _, _ in ordered]) - low) / (high - low)
    # The nearest places to the lines that are a step apart.
    places = isotonic_regression(height - steps).x + steps
    for (_, text, colour), start, place in zip(ordered, height, places, strict=True):
        axes.plot([1.0, 1.03], [start, place], color=colour, lw=0.7, transform=axes.transAxes, clip_on=False)
        axes.annotate(text, (1.035, place), xycoords="axes fraction", va="center", fontsize=8, color=colour)


def main(arguments: Sequence[str] | None = None) -> list[Result]:
    """Measure all mechanisms, print the table, and write the JSON and the picture beside it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FILE.npy", help="a 2-D histogram")
    parser.add_argument("--side", type=int, help="sum the histogram down to so many cells a side")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta-cells", default="1,2,4,8", metavar="LIST", help="δ in cells")
    parser.add_argument("--queries", type=int, default=QUERIES, help="random rectangles")
    parser.add_argument("--trials", type=int, default=TRIALS, help="releases of each mechanism")
    parser.add_argument(
        "--json", type=Path, required=True, metavar="OUT", help="the results; OUT.png is drawn beside"
    )
    chosen = parser.parse_args(arguments)
    try:
        deltas = sorted({int(d) for d in chosen.delta_cells.split(",")})
        if deltas[0] < 1:
            raise ValueError
    except ValueError:
        parser.error(
            f"--delta-cells is {chosen.delta_cells!r}: it must be whole numbers from 1 on, such as 1,2,4,8"
        )
    try:
        contest = Contest(
            read_counts(chosen.data, chosen.side), chosen.epsilon, chosen.queries, chosen.trials
        )
        results = []
        for result in (r for source in (ours(contest, deltas), peers(contest)) for r in source):
            results.append(result)
            print(f"{result.rmse:9.4g}  {result.mechanism}  (δ {result.delta_cells or 'any'})", flush=True)
    except InputError as problem:
        parser.error(str(problem))
    chosen.json.write_text(
        json.dumps([asdict(r) for r in results], indent=1, ensure_ascii=False) + "\n", "utf-8"
    )
    draw(results, chosen.json.with_suffix(".png"))
    print()
    print_table([asdict(r) for r in sorted(results, key=lambda r: r.rmse)])
    print()
    for row in verdict(results):
        print_table([row])
    return results


if __name__ == "__main__":
    main()
