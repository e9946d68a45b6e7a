"""Refine a city map in steps: error against the total budget spent, compared with composition and a fresh release.

`python -m experiments.gradual_city [--small] [--out DIR]`. Neither noise nor errors depend on the data.
See docs/privacy/gradual.md.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import datasets
import deltahist as dh
from deltahist.planning import mechanism_for
from experiments._common import BLUE, GREEN, GREY, ORANGE, Found, command, figure, print_table, save, write_csv
from experiments.districts import projected

BOUNDS, CELL, DELTA = (560_000, 4_480_000, 610_000, 4_530_000), 500.0, 500.0
EPSILONS = tuple(Fraction(e, 20) for e in (2, 4, 8, 14, 20, 30))
#: Squares of 2 to 40 whole cells a side, so noise is the only error.
SQUARES, RUNS = 400, 60
Floats = NDArray[np.float64]


def city() -> NDArray[np.int64]:
    """Return counts of an invented city."""
    visits = datasets.sample_points(seed=7)
    return np.asarray(dh.count(projected(visits["lon"], visits["lat"], 32618), near().domain, outside="clamp"))


def near() -> dh.Neighbourhood:
    """Return the public neighbourhood."""
    return dh.Neighbourhood(dh.Domain(BOUNDS, cell=CELL), DELTA)


def squares(domain: dh.Domain) -> dh.workloads.Boxes:
    """Return random squares of whole cells."""
    rng = np.random.default_rng(3)
    side = np.rint(np.geomspace(2, 40, SQUARES)).astype(int)
    corner = rng.integers(0, np.array(domain.shape) - side[:, None] + 1)
    low, cell = np.array(domain.low), np.array(domain.cell)
    return dh.workloads.boxes(np.column_stack([low + corner * cell, low + (corner + side[:, None]) * cell]))


def errors(counts: NDArray[np.int64], work: dh.workloads.Boxes, runs: int) -> Iterator[dict[str, Any]]:
    """Return root mean square errors over squares and runs after each step, by method."""
    relation = near()
    first = mechanism_for(relation, workload=work, epsilon=EPSILONS[-1])
    truth = work.matrix(relation.domain) @ counts.ravel().astype(float)
    off: dict[str, list[Floats]] = {name: [] for name in ("chain", "fresh", "composition", "last part")}
    parts = [now - before for before, now in zip((Fraction(0), *EPSILONS), EPSILONS, strict=False)]
    weights = 1 / np.array([first.with_budget(dh.Budget(part)).variance(work) for part in parts])
    for run in range(runs):
        rng = np.random.default_rng(run)
        with tempfile.TemporaryDirectory() as folder:
            state = f"{folder}/state"
            release = dh.publishers.publish_mechanism(
                first.with_budget(dh.Budget(EPSILONS[0])), counts, state=state, rng=rng
            )
            chain = [release] + [dh.refine(None, state, epsilon=e, rng=rng) for e in EPSILONS[1:]]
        fresh = [dh.publishers.publish_mechanism(first.with_budget(dh.Budget(e)), counts, rng=rng) for e in EPSILONS]
        split = [dh.publishers.publish_mechanism(first.with_budget(dh.Budget(e)), counts, rng=rng) for e in parts]
        found = {name: np.array([_answers(r, work) for r in made]) for name, made in
                 (("chain", chain), ("fresh", fresh), ("last part", split))}  # fmt: skip
        sums = np.cumsum(weights * found["last part"], axis=0) / np.cumsum(weights, axis=0)
        for name, values in (found | {"composition": sums}).items():
            off[name].append(values - truth)
    for i, epsilon in enumerate(EPSILONS):
        yield {"epsilon": float(epsilon)} | {
            name: math.sqrt(np.mean([o[i] ** 2 for o in each])) for name, each in off.items()
        } | {"expected": first.with_budget(dh.Budget(epsilon)).rmse(work)}  # fmt: skip


def _answers(release: dh.Release, work: dh.workloads.Boxes) -> Floats:
    return np.asarray(dh.answer(release, work)["estimate"], dtype=np.float64)


def run(out: Path, small: bool) -> Found:
    """Write gradual_city.csv (a row per step) and gradual_city.png."""
    rows = list(errors(city(), squares(near().domain), 3 if small else RUNS))
    write_csv(out / "gradual_city.csv", rows)
    print_table(rows)
    _draw(rows, out / "gradual_city.png")
    return {
        "error of the chain over that of a fresh release": _ratio(rows, "chain", "fresh"),
        "error of the chain over what is expected of a single release": _ratio(rows, "chain", "expected"),
        "error of composition over the chain's, at the last step": rows[-1]["composition"] / rows[-1]["chain"],
    }


def _ratio(rows: Sequence[dict[str, Any]], one: str, other: str) -> float:
    return math.sqrt(float(np.mean([(row[one] / row[other]) ** 2 for row in rows])))


def _draw(rows: Sequence[dict[str, Any]], file: Path) -> None:
    drawn = figure(5.6, 4.2)
    ax = drawn.subplots()
    epsilon = [row["epsilon"] for row in rows]
    for key, label, style in (
        ("last part", "composition, its last release", {"color": GREY, "marker": "v", "ls": ":"}),
        ("composition", "composition, best average of all", {"color": ORANGE, "marker": "s"}),
        ("fresh", "one release at that ε", {"color": GREEN, "marker": "o", "ms": 9, "mfc": "none", "ls": "none"}),
        ("chain", "chain (ours)", {"color": BLUE, "marker": "."}),
    ):
        ax.loglog(epsilon, [row[key] for row in rows], label=label, **style)
    ax.set_xlabel("ε spent altogether")
    ax.set_ylabel("error of a square, in points (root mean square)")
    ax.set_xticks(epsilon, [f"{e:g}" for e in epsilon])
    ticks = (10, 20, 50, 100, 200)
    ax.set_yticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
