"""Range queries on a 2-D histogram: our mechanisms under δ-neighbourhood against published ones under any move.

All mechanisms answer the same random rectangles (uniform over all ranges) on one histogram with a public total. Their
neighbour relations differ, so each row names its own: `delta` protects moves of up to δ cells, `any` protects moves of
any length. A peer's guarantee under any move does not depend on δ, so its line in the picture is flat. A policy graph
and planar Laplace noise protect moves of up to one cell. `pure` is ε-differential privacy,
`approx` is (ε, 10⁻⁶). `claimed` is pure in name only, so such a row appears only in the table. Non-negative decoding is
post-processing, so linear peers get it too; both are listed.

Every row also states the cost of a move of any length, in multiples of ε (for Gaussian noise, in its unit). Our
mechanisms are also measured with a limit on that cost, and compared with peers at the same multiple of ε.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

import deltahist as dh
from deltahist.decode import estimate_nonnegative
from deltahist.decode.projection import simulate_metric
from deltahist.errors import InputError, as_printed_fraction
from deltahist.space.workloads import box_sums
from deltahist.strategies import Flow, Spectral, Strategy, Tents
from experiments._common import Found, figure, print_table, save, write_csv
from experiments._frontier_plot import draw_frontier
from experiments.peers import LINEAR, NEARBY, PEERS, STRATEGIES, UNSOUND, Peer

PROBABILITY = 1e-6
QUERIES, TRIALS, SEED = 5000, 10, 20150331
#: Limits on the cost of a move of any length, in multiples of ε.
LIMITS = (1.0, 1.5, 2.0, 4.0, 8.0)
#: Under a limit, skip pure strategies whose expected error exceeds the best by this factor.
_CLOSE = 1.3
_DECODED = ", non-negative"

Counts = NDArray[np.int64]
Cells = NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """One measured mechanism: RMSE per query in points, and seconds per release including decoding.

    `limit` caps the cost of any move and `any_move` is the actual cost, both in multiples of ε or of the noise's unit.
    `epsilon` is the mechanism's budget: for a peer the contest's ε times the limit.
    """

    mechanism: str
    family: str
    relation: str
    delta_cells: int | None
    privacy: str
    limit: float | None
    any_move: float
    epsilon: float
    rmse: float
    seconds: float

    @property
    def decoded(self) -> bool:
        """Whether estimates are non-negative."""
        return self.mechanism.endswith(_DECODED)


@dataclass(frozen=True, eq=False)
class Contest:
    """The histogram, the rectangles and the budget that all mechanisms share."""

    counts: Counts
    epsilon: float
    queries: int = QUERIES
    trials: int = TRIALS

    @functools.cached_property
    def domain(self) -> dh.Domain:
        """The domain, one unit per cell."""
        return dh.Domain((0, 0, *self.counts.shape), self.counts.shape)

    @functools.cached_property
    def spans(self) -> Any:
        """The rectangles in cells."""
        return dh.workloads.all_ranges(self.domain).sample(self.queries, SEED).spans(self.domain)

    def near(self, delta: float, limit: float | None = None) -> dh.Neighbourhood:
        """Return the neighbourhood of moves up to `delta` cells, with a public total and perhaps a limit."""
        return dh.Neighbourhood(self.domain, delta, limits=() if limit is None else [(math.inf, limit)])

    def measure(self, run: Callable[[np.random.Generator], Cells]) -> tuple[float, float]:
        """Return the RMSE over all trials, and seconds per trial."""
        truth = box_sums(self.counts.astype(np.float64), self.spans)
        squares = []
        start = time.perf_counter()
        for trial in range(self.trials):
            cells = run(np.random.default_rng([SEED, trial]))
            squares.append(((box_sums(cells, self.spans) - truth) ** 2).mean())
        seconds = (time.perf_counter() - start) / self.trials
        return float(np.sqrt(np.mean(squares))), seconds


def ours(contest: Contest, deltas: Sequence[int], limits: Sequence[float] = LIMITS) -> Iterator[Result]:
    """Measure flows and tents at pure ε and spectral strategies at (ε, 10⁻⁶), decoded both ways, for every δ and limit.

    Pure strategies with a limit whose expected error is far from the best are skipped.
    """
    for delta, limit in itertools.product(deltas, (None, *limits)):
        near = contest.near(delta, limit)
        work = dh.workloads.all_ranges(contest.domain)
        pure: dict[str, Strategy] = {"flow": Flow.tuned(near), "tents": Tents.tuned(near)}
        expected = {name: dh.Mechanism(near, A, dh.Budget(1)).rmse(work) for name, A in pure.items()}
        for name, strategy in pure.items():
            if limit is None or expected[name] <= _CLOSE * min(expected.values()):
                yield from _linear(contest, name, strategy, near, ("ours", "delta", delta, "pure", limit))
        spectral = Spectral(near)
        yield from _linear(contest, "spectral", spectral, near, ("ours", "delta", delta, "approx", limit))


def peers(contest: Contest, limits: Sequence[float] = LIMITS) -> Iterator[Result]:
    """Measure published mechanisms under any move, at ε times each limit. The Gaussian optimum is approximate."""
    anywhere = contest.near(1).anywhere()
    optimum = Spectral(anywhere)
    for limit in dict.fromkeys((1.0, *limits)):
        of_any = ("peer", "any", None)
        for name, make in STRATEGIES.items():
            yield from _linear(contest, name, make(contest.domain), anywhere, (*of_any, "pure", limit))
        for name, peer in PEERS.items():
            privacy = "claimed" if name in UNSOUND else "pure"
            yield from _peer(contest, name, peer, (*of_any, privacy, limit), limit)
        yield from _linear(contest, "Gaussian optimum", optimum, anywhere, (*of_any, "approx", limit))


def nearby_peers(contest: Contest) -> Iterator[Result]:
    """Measure published mechanisms that protect moves of up to one cell at ε. Longer moves cost more."""
    for name, (peer, any_move) in NEARBY.items():
        yield from _peer(contest, name, peer, ("peer", "delta", 1, "pure", None), any_move(contest.counts.shape))


def largest_rho(near: dh.Neighbourhood, strategy: Strategy, epsilon: float) -> Fraction:
    """Return the largest ρ whose Gaussian noise is (ε, PROBABILITY)-private, rounded down."""
    mechanism = dh.Mechanism(near, strategy, dh.Budget(rho=1))

    def fits(rho: Fraction) -> bool:
        return mechanism.with_budget(dh.Budget(rho=rho)).approximate(PROBABILITY) <= epsilon

    low, high = Fraction(0), Fraction(1)
    while fits(high):
        low, high = high, high * 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _linear(
    contest: Contest,
    name: str,
    strategy: Strategy,
    near: dh.Neighbourhood,
    kind: tuple[str, str, int | None, str, float | None],
) -> Iterator[Result]:
    times = kind[4] if kind[0] == "peer" and kind[4] is not None else 1.0
    budget: dict[str, Any] = {"epsilon": contest.epsilon * times}
    if kind[3] == "approx":
        # A limit is in the noise's unit.
        budget = {"rho": largest_rho(near, strategy, contest.epsilon) * as_printed_fraction(times) ** 2}
    mechanism = dh.Mechanism(near, strategy, dh.Budget(**budget))
    of_it = float(mechanism.cost_within(near.diameter)[0] / mechanism.budget.amount)
    any_move = times * (of_it if kind[3] == "pure" else math.sqrt(of_it))

    def run(rng: np.random.Generator, *, nearest: bool) -> Cells:
        release = dh.publishers.publish_mechanism(mechanism, contest.counts, rng=rng, weak_protection_accepted=True)
        return release.projection.cells if nearest else release.cells()

    for suffix, positive in (("", False), (_DECODED, True)):
        rmse, seconds = contest.measure(functools.partial(run, nearest=positive))
        yield Result(name + suffix, *kind, any_move, contest.epsilon * times, rmse, seconds)


def _peer(
    contest: Contest, name: str, peer: Peer, kind: tuple[str, str, int | None, str, float | None], any_move: float
) -> Iterator[Result]:
    epsilon = contest.epsilon * (1.0 if kind[4] is None else kind[4])

    runs = {name: peer} | ({name + _DECODED: decode(peer)} if name in LINEAR else {})
    for label, run in runs.items():
        run(contest.counts, epsilon, rng=np.random.default_rng(0))  # optimise strategies and metrics once, untimed
        rmse, seconds = contest.measure(functools.partial(_call, run, contest.counts, epsilon))
        yield Result(label, *kind, any_move, epsilon, rmse, seconds)


def _call(peer: Peer, counts: Counts, epsilon: float, rng: np.random.Generator) -> Cells:
    return peer(counts, epsilon, rng=rng)


def decode(peer: Peer) -> Peer:
    """Add our non-negative decoding to a peer with noise that does not depend on the data."""

    @functools.cache
    def simulate(shape: tuple[int, ...], epsilon: float) -> tuple[Any, Any]:
        rng = np.random.default_rng(SEED)

        def noise() -> Cells:
            cells = peer(np.zeros(shape, dtype=np.int64), epsilon, rng=rng)
            return cells - cells.mean()

        metric = simulate_metric(noise, shape, total_known=True)
        fields = [noise() for _ in range(4)]
        # The rule of `find_least_count`, with simulated noise.
        corners = [np.arange(0, n - 3, 4) for n in shape]
        low = [axis.ravel() for axis in np.meshgrid(*corners)]
        blocks = np.std([box_sums(field, [(each, each + 4) for each in low]) for field in fields])
        return metric, blocks * (1 + scipy.stats.kurtosis(np.ravel(fields)) / 6)

    def run(counts: Counts, epsilon: float, *, rng: np.random.Generator) -> Cells:
        metric, least = simulate(counts.shape, epsilon)
        cells = peer(counts, epsilon, rng=rng)
        cells = cells + (counts.sum() - cells.sum()) / counts.size
        return estimate_nonnegative(cells, metric, int(counts.sum()), least).cells

    return run


def read_counts(file: Path, side: int | None = None) -> Counts:
    """Read a square histogram of whole numbers from an NPY file, summed to `side` cells per side if given.

    Raises InputError if the file contains something else.
    """
    try:
        array = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as problem:
        raise InputError(f"--data {str(file)!r} is not a readable NPY file: {problem}") from None
    if array.ndim != 2 or min(array.shape) < 2:
        raise InputError(f"--data {str(file)!r} has shape {array.shape}: it must be a 2-D histogram")
    if not np.isfinite(array).all() or (array < 0).any() or (array != np.rint(array)).any():
        raise InputError(f"--data {str(file)!r} must contain counts: whole numbers, none negative")
    counts = array.astype(np.int64)
    if side is None:
        return counts
    if any(n % side for n in counts.shape):
        raise InputError(f"--side is {side}: it must divide the histogram's sides {counts.shape}")
    x, y = (n // side for n in counts.shape)
    return counts.reshape(side, x, side, y).sum(axis=(1, 3))


def invent_counts(side: int) -> Counts:
    """Return an invented histogram: one dense clump among a few evenly spread points."""
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.normal((0.3, 0.6), 0.06, (4000, 2)), rng.random((300, 2))])
    return np.histogram2d(*points.T, bins=side, range=[(0, 1), (0, 1)])[0].astype(np.int64)


def verdict(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Compare our best mechanism with the best peer at the same multiple of ε, for every δ and limit."""
    rows = []
    own = [r for r in results if r.family == "ours"]
    limits = sorted({r.limit for r in results if r.limit is not None})
    for delta in sorted({r.delta_cells for r in own if r.delta_cells is not None}):
        for limit in [*limits, None]:
            row: dict[str, Any] = {"delta in cells": delta, "any move may cost": limit or "whatever"}
            for privacy in ("pure", "approx"):
                ours_here = [r for r in own if (r.delta_cells, r.limit, r.privacy) == (delta, limit, privacy)]
                rivals = [r for r in results if (r.family, r.limit, r.privacy) == ("peer", limit or 1.0, privacy)]
                if not ours_here or not rivals:
                    continue
                best, rival = (min(group, key=lambda r: r.rmse) for group in (ours_here, rivals))
                row |= {
                    f"our {privacy}": f"{best.rmse:.4g} ({best.mechanism.removesuffix(_DECODED)})",
                    f"costs ({privacy})": best.any_move,
                    f"{privacy} peer": f"{rival.rmse:.4g} ({rival.mechanism.removesuffix(_DECODED)})",
                    f"ours / {privacy} peer": best.rmse / rival.rmse,
                }
            rows.append(row)
    return rows


def draw(results: Sequence[Result], file: Path) -> None:
    """Draw RMSE against δ: one line per mechanism, labelled at its right end. Peers are flat."""
    results = [r for r in results if r.limit == (None if r.family == "ours" else 1) and r.privacy != "claimed"]
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
    axes.set_title("Ours protects moves of up to δ, here without limits, the others any move")
    _place(axes, labels)
    save(drawn, file)


def _budget(privacy: str) -> str:
    return "pure ε" if privacy == "pure" else "(ε, 10⁻⁶)"


def _place(axes: Any, labels: Sequence[tuple[float, str, str]]) -> None:
    """Place labels to the right of the axes and move overlapping ones apart."""
    from scipy.optimize import isotonic_regression

    low, high = np.log(axes.get_ylim())
    ordered = sorted(labels)
    steps = np.arange(len(ordered)) / 30
    height = (np.log([value for value, _, _ in ordered]) - low) / (high - low)
    # Find the positions nearest to the lines that are at least one step apart.
    places = isotonic_regression(height - steps).x + steps
    for (_, text, colour), start, place in zip(ordered, height, places, strict=True):
        axes.plot([1.0, 1.03], [start, place], color=colour, lw=0.7, transform=axes.transAxes, clip_on=False)
        axes.annotate(text, (1.035, place), xycoords="axes fraction", va="center", fontsize=8, color=colour)


def compare(contest: Contest, deltas: Sequence[int], limits: Sequence[float], file: Path) -> list[Result]:
    """Measure all mechanisms, print the tables, and write the JSON file and two pictures next to it."""
    results = []
    nearby = nearby_peers(contest) if 1 in deltas else ()
    for result in itertools.chain(ours(contest, deltas, limits), nearby, peers(contest, limits)):
        results.append(result)
        said = f"δ {result.delta_cells or 'any'}, any move {result.any_move:.3g}"
        print(f"{result.rmse:9.4g}  {result.mechanism}  ({said})", flush=True)
    file.write_text(json.dumps([asdict(r) for r in results], indent=1, ensure_ascii=False) + "\n", "utf-8")
    draw(results, file.with_suffix(".png"))
    draw_frontier(results, file.with_name(f"{file.stem}-frontier.png"))
    print()
    print_table([asdict(r) for r in sorted(results, key=lambda r: r.rmse)])
    print()
    print_table(verdict(results))
    return results


def run(out: Path, small: bool) -> Found:
    """Write compare_2d.csv, compare_2d.json and two pictures for an invented histogram."""
    side, deltas, limits = (16, [1], [1.0]) if small else (64, [1, 2, 4, 8], list(LIMITS))
    contest = Contest(invent_counts(side), 1.0, *((300, 2) if small else ()))
    results = compare(contest, deltas, limits, out / "compare_2d.json")
    write_csv(out / "compare_2d.csv", [asdict(r) for r in results])
    return {
        f"RMSE if any move costs ε, {who}": min(
            r.rmse for r in results if (r.family, r.limit, r.privacy) == (who, 1, "pure")
        )
        for who in ("ours", "peer")
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare on the histogram in a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FILE.npy", help="a 2-D histogram")
    parser.add_argument("--side", type=int, help="coarsen the histogram to this many cells per side")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta-cells", default="1,2,4,8", metavar="LIST", help="δ in cells")
    parser.add_argument("--queries", type=int, default=QUERIES, help="number of random rectangles")
    parser.add_argument("--trials", type=int, default=TRIALS, help="number of releases per mechanism")
    parser.add_argument(
        "--json",
        type=Path,
        required=True,
        metavar="OUT",
        help="results file; OUT.png and OUT-frontier.png go next to it",
    )
    parser.add_argument(
        "--limits",
        default=",".join(f"{x:g}" for x in LIMITS),
        metavar="LIST",
        help="limits on the cost of any move, in multiples of ε",
    )
    chosen = parser.parse_args(arguments)
    try:
        deltas = sorted({int(d) for d in chosen.delta_cells.split(",")})
        if deltas[0] < 1:
            raise ValueError
    except ValueError:
        parser.error(f"--delta-cells is {chosen.delta_cells!r}: it must be whole numbers above 0, such as 1,2,4,8")
    try:
        limits = sorted({float(x) for x in chosen.limits.split(",")})
        if not all(1 <= x < math.inf for x in limits):
            raise ValueError
    except ValueError:
        parser.error(f"--limits is {chosen.limits!r}: it must be numbers of at least 1, such as 1,2,4")
    try:
        compare(
            Contest(read_counts(chosen.data, chosen.side), chosen.epsilon, chosen.queries, chosen.trials),
            deltas,
            limits,
            chosen.json,
        )
    except InputError as problem:
        parser.error(str(problem))


if __name__ == "__main__":
    main()
