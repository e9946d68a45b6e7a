"""2014, Table 1, Table 2: four counts published directly and as suffix sums, simulated and by exact variance.

The example of section 5.1: values 1/4, 2/4, 3/4, 1, a source at the left end, δ = 0.25, ε = 1. Releases use discrete
noise; the table also shows the paper's figure for continuous noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import deltahist as dh
from experiments._common import BLUE, GREY, ORANGE, Found, command, figure, print_table, save, write_csv

COUNTS = np.array([30, 10, 40, 20])
DOMAIN = dh.Domain((0, 1), (4,))
NEAR = dh.Neighbourhood(DOMAIN, delta=0.25, sources="left")
TABLES = {"Table 1: c": dh.strategies.Identity(DOMAIN), "Table 2: a": dh.strategies.Cumulative(DOMAIN)}
SEED = 512


def run(out: Path, small: bool) -> Found:
    """Publish, simulate, and write table1_2.csv and table1_2.png."""
    repetitions = 20_000 if small else 500_000
    rng = np.random.default_rng(SEED)
    rows: list[dict[str, object]] = []
    for name, strategy in TABLES.items():
        _show_one(name, strategy, rng)
        rows += _variances(name, strategy, repetitions, rng)
    print_table(rows)
    write_csv(out / "table1_2.csv", rows)
    _draw(rows, repetitions, out / "table1_2.png")
    worst = max(abs(float(str(r["simulated"])) / float(str(r["exact, discrete"])) - 1) for r in rows)
    return {
        "sensitivity of Table 1 and Table 2": " and ".join(str(dh.sensitivity(A, NEAR)) for A in TABLES.values()),
        "largest deviation of simulated from exact variances": f"{worst:.2%} ({repetitions:,} repetitions)",
    }


def _show_one(name: str, strategy: dh.Strategy, rng: np.random.Generator) -> None:
    release = dh.publish(COUNTS, NEAR, strategy, epsilon=1, rng=rng)
    print(
        f"{name}'  true {strategy.measure(COUNTS).tolist()}, published {release.values.tolist()}, "
        f"counts by least squares {release.cells().round(2).tolist()}"
    )


def _variances(name: str, strategy: dh.Strategy, repetitions: int, rng: np.random.Generator) -> list[dict[str, object]]:
    """Return one row per range: its exact variance, and the variance over many releases made at once."""
    work = dh.workloads.all_ranges(DOMAIN)
    scale = dh.sensitivity(strategy, NEAR)
    published = strategy.measure(COUNTS)[:, None] + dh.noise.discrete_laplace(scale, (4, repetitions), rng=rng)
    cells = np.linalg.solve(strategy.matrix().toarray().astype(float), published)
    queries = work.matrix(DOMAIN).toarray()
    simulated = (queries @ cells - (queries @ COUNTS)[:, None]).var(axis=1)
    discrete = dh.expected_error(strategy, NEAR, work, 1.0)
    continuous = dh.expected_error(strategy, NEAR, work, 1.0, continuous=True)
    (first, after) = work.spans(DOMAIN)[0]
    return [
        {
            "published": name,
            "first count": int(i) + 1,
            "last count": int(j),
            "simulated": round(float(s), 4),
            "exact, discrete": round(float(d), 4),
            "exact, continuous": round(float(c), 4),
        }
        for i, j, s, d, c in zip(first, after, simulated, discrete, continuous, strict=True)
    ]


def _draw(rows: Sequence[dict[str, object]], repetitions: int, file: Path) -> None:
    drawn = figure(10, 4.4)
    series = (("simulated", BLUE), ("exact, discrete", ORANGE), ("exact, continuous", GREY))
    for axes, name in zip(drawn.subplots(1, 2), TABLES, strict=True):
        part = [r for r in rows if r["published"] == name]
        place = np.arange(len(part))
        for shift, (column, colour) in enumerate(series):
            axes.bar(place + 0.27 * (shift - 1), [r[column] for r in part], 0.27, label=column, color=colour)
        labels = [f"{r['first count']}-{r['last count']}" for r in part]
        axes.set_xticks(place, labels)
        axes.set(xlabel="range of counts", ylabel="variance of the answer (points²)")
        axes.set_title(f"{name}'  (sensitivity {dh.sensitivity(TABLES[name], NEAR)})")
        axes.margins(y=0.25)
        axes.legend(title=f"ε = 1, {repetitions:,} repetitions", fontsize=8, title_fontsize=8, ncols=3)
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
