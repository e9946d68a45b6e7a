"""Relax the noise of reports step by step: which strings do three methods detect at each cumulative ε?

The candidates are a hundred strings of falling frequency, and a hundred that nobody has. "channels" refines one report
at equal ε, "composition" adds independent reports whose ε add up, and "fresh" draws one report at the last ε.
See docs/privacy/rappor.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltahist.network.clients import Clients
from deltahist.network.rappor import Rappor, Reports
from experiments._common import BLUE, GREY, Found, command, figure, save, write_csv

LEVELS = (1.0, 2.0, 3.0, 4.0, 6.0)
TEXTS = [f"place {i}" for i in range(100)]
ABSENT = [f"nobody's place {i}" for i in range(100)]
FILTER: dict[str, Any] = {"bits": 128, "hashes": 2, "cohorts": 16, "p": 0, "q": 1}
WAYS = {
    "channels": "chain of channels (here)",
    "fresh": "one report at the last ε",
    "composition": "independent reports",
}


def refined(texts: list[str], levels: Sequence[float], rng: np.random.Generator) -> Iterator[Reports]:
    """Return one report at each level, each a finer version of the one before."""
    clients = Clients(texts, Rappor.costing(levels[0], **FILTER), rng=rng)
    yield clients.report(rng=rng)
    for epsilon in levels[1:]:
        clients = clients.relax(f=Rappor.costing(epsilon, **FILTER).f, rng=rng)
        yield clients.refine(rng=rng)


def together(reports: Sequence[Reports]) -> Any:
    """Combine independent reports, weighted by variance, and find the channel of the combined variance."""
    weights, counts = [], []
    users = reports[0].users
    for each in reports:
        channel = each.mechanism.report
        rise = float(channel.one - channel.zero)
        weights.append(rise**2 / float(channel.zero * (1 - channel.zero)))
        counts.append((each.ones - float(channel.zero) * users[:, None]) / rise)
    # Flips with probability π give an unset bit the variance π (1 − π)/(1 − 2π)²; solve for π.
    variance = 1 / sum(weights)
    flips = (1 - 1 / np.sqrt(1 + 4 * variance)) / 2
    mean = np.average(counts, axis=0, weights=weights)
    ones = np.clip(flips * users[:, None] + (1 - 2 * flips) * mean, 0, users[:, None])
    alike = replace(reports[0].mechanism, f=2 * flips, p=0, q=1)
    return alike.decode(ones, users, TEXTS + ABSENT)


def measured(texts: list[str], true: NDArray[np.int64], seed: int, levels: Sequence[float]) -> Iterator[dict[str, Any]]:
    """Return a row for each method and level."""
    rng = np.random.default_rng((seed, 1))
    cohorts = rng.integers(0, FILTER["cohorts"], len(texts))
    chain = refined(texts, levels, rng)
    apart: list[Reports] = []
    for epsilon, before in zip(levels, (0.0, *levels), strict=False):
        alone = Clients(texts, Rappor.costing(epsilon, **FILTER), cohorts, rng=rng).report(rng=rng)
        more = Clients(texts, Rappor.costing(epsilon - before, **FILTER), cohorts, rng=rng)
        apart.append(more.report(rng=rng))
        names = TEXTS + ABSENT
        tables = {"channels": next(chain).decode(names), "fresh": alone.decode(names), "composition": together(apart)}
        for way in WAYS:
            found = tables[way]
            off = found["estimate"].to_numpy()[: len(TEXTS)] - true
            yield {
                "way": way,
                "epsilon": epsilon,
                "seed": seed,
                "found": int(found["significant"][: len(TEXTS)].sum()),
                "found that nobody has": int(found["significant"][len(TEXTS) :].sum()),
                "rmse": float(np.sqrt((off**2).mean())),
            }


def run(out: Path, small: bool) -> Found:
    """Write rappor_relaxing.csv and rappor_relaxing.png."""
    users, seeds = (4_000, 1) if small else (30_000, 4)
    levels = LEVELS[1::2] if small else LEVELS
    share = np.exp(-np.arange(len(TEXTS)) / 15)
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        drawn = np.random.default_rng(seed).choice(len(TEXTS), users, p=share / share.sum())
        texts = [TEXTS[i] for i in drawn]
        rows += measured(texts, np.bincount(drawn, minlength=len(TEXTS)), seed, levels)
    write_csv(out / "rappor_relaxing.csv", rows)
    _draw(rows, levels, users, out / "rappor_relaxing.png")
    last = levels[-1]
    found: Found = {
        f"{what} at ε = {last:g}, {way}": round(float(mean(rows, way, last, what)), 1)
        for what in ("found", "rmse")
        for way in WAYS
    }
    return found | {"found that nobody has, in all": sum(row["found that nobody has"] for row in rows)}


def mean(rows: Sequence[dict[str, Any]], way: str, epsilon: float, what: str) -> float:
    """Return the mean over the seeds."""
    return float(np.mean([row[what] for row in rows if (row["way"], row["epsilon"]) == (way, epsilon)]))


def _draw(rows: Sequence[dict[str, Any]], levels: Sequence[float], users: int, file: Path) -> None:
    drawn = figure(11, 4.4)
    panels = drawn.subplots(1, 2)
    styles = zip(WAYS, ("-", "none", "--"), ("o", "x", "^"), (BLUE, "black", GREY), strict=True)
    for way, line, marker, colour in styles:
        for axes, what in zip(panels, ("found", "rmse"), strict=True):
            values = [mean(rows, way, epsilon, what) for epsilon in levels]
            axes.plot(levels, values, linestyle=line, marker=marker, color=colour, label=WAYS[way],
                      markersize=9 if way == "fresh" else 5, zorder=3 if way == "fresh" else 2)  # fmt: skip
    panels[0].set(title=f"texts found, of {len(TEXTS)}", ylabel="texts", ylim=(0, None))
    panels[1].set(title="root mean square error of a text's users", ylabel="users", ylim=(0, None))
    for axes in panels:
        axes.set(xlabel=f"ε of all that a user reported ({users:,} users)")
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize=9)
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
