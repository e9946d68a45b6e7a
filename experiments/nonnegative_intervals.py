"""Intervals of non-negative answers: do they hold as often as they say, and how wide are they and how near?

`python -m experiments.nonnegative_intervals [--data FOLDER] [--releases NUMBER] [--small] [--out DIR]`; the folder
holds the public data sets by their own names (docs/datasets.md). The table that is printed is Markdown; what misses an
aim is bold. Docs: docs/experiments.md.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import deltahist as dh
from deltahist._progress import progress
from deltahist.decode import box_sums
from deltahist.errors import InputError
from deltahist.strategies import Flow, Hierarchical, Identity, Spectral, Strategy, Tents
from experiments._common import Found, Row, figure, parser_of, print_found, print_markdown, save, write_csv
from experiments._maps import Counts, invented, public, stand_ins

SIDE, BOXES, RELEASES, LEVEL, SEED = 128, 4_000, 5, 0.95, 29
SMALL_SIDE, SMALL_BOXES, SMALL_RELEASES, SMALL_MAPS = 16, 600, 1, 2
#: First of every bin: cells of a box, and points that it truly holds.
BINS = {"area": (1, 8, 32, 128, 512, 2_048), "count": (0, 1, 10, 100, 1_000, 10_000)}
#: A bin with fewer boxes than this, of all releases together, tells too little.
FEWEST = 60
#: What is aimed at: coverage of all boxes within, of every bin at least; width over the unbiased intervals', and error
#: over that of the nearest non-negative cells, at most.
COVERAGE, IN_A_BIN, WIDTH, ERROR = (0.94, 0.985), 0.93, 0.65, 1.01


@dataclass(frozen=True)
class Case:
    """A strategy and its budget, and how it is drawn; one that is not promised need not meet the aims."""

    name: str
    strategy: Callable[[dh.Neighbourhood], Strategy]
    budget: dh.Budget
    mark: str
    promised: bool = True

    def mechanism(self, side: int) -> dh.Mechanism:
        """For a map of so many cells a side, of which moves within one cell are protected."""
        near = dh.Neighbourhood(dh.Domain((0, 0, side, side), (side, side)), delta=1)
        return dh.Mechanism(near, self.strategy(near), self.budget)


CASES = (
    Case("flow", Flow.tuned, dh.Budget(epsilon=1), "o"),
    Case("flow, ε = 0.1", Flow.tuned, dh.Budget(epsilon=0.1), "v"),
    Case("spectral, ρ = 0.05", Spectral, dh.Budget(rho=0.05), "^"),
    Case("hierarchical", lambda near: Hierarchical(near.domain, 4), dh.Budget(epsilon=1), "s"),
    Case("tents", Tents.tuned, dh.Budget(epsilon=1), "D"),
    Case(
        "identity (not promised)",
        lambda near: Identity(near.domain),
        dh.Budget(epsilon=1),
        "X",
        promised=False,
    ),
)


@dataclass(frozen=True, eq=False)
class Measured:
    """A map under a strategy: figures of all boxes (first), of every bin by area, and of every bin by count."""

    data: str
    case: Case
    figures: Sequence[Row]

    def lowest(self, kind: str) -> tuple[float, str]:
        """Least coverage of a bin that holds enough boxes, and which bin it is; 1 if there is none."""
        enough = (row for row in self.figures if row["by"] == kind and row["boxes"] >= FEWEST)
        return min(((row["coverage"], row["bin"]) for row in enough), default=(1.0, "none"))

    @property
    def missed(self) -> set[str]:
        """Columns of the table that miss their aims, by the figures as they are printed."""
        whole = self.figures[0]
        coverage, area, count = (
            round(share, 3) for share in (whole["coverage"], *(self.lowest(kind)[0] for kind in BINS))
        )
        aims = {
            "coverage": COVERAGE[0] <= coverage <= COVERAGE[1],
            "lowest by area": area >= IN_A_BIN,
            "lowest by count": count >= IN_A_BIN,
            "width": round(whole["width"], 2) <= WIDTH,
            "error / nearest": round(whole["error / nearest"], 3) <= ERROR,
        }
        return {name for name, met in aims.items() if not met}

    @property
    def printed(self) -> dict[str, str]:
        """A row of the table; what misses its aim is bold."""
        whole, missed = self.figures[0], self.missed
        row = {
            "set": self.data,
            "strategy": self.case.name,
            "coverage": f"{whole['coverage']:.1%}",
            **{f"lowest by {kind}": "{:.1%} ({})".format(*self.lowest(kind)) for kind in BINS},
            "width": f"{whole['width']:.2f}",
            "error / unbiased": f"{whole['error / unbiased']:.2f}",
            "error / nearest": f"{whole['error / nearest']:.3f}",
            "fell back": f"{whole['fell back']} of {whole['releases']}",
            "seconds": f"{whole['seconds']:.1f}",
        }
        return {name: f"**{text}**" if name in missed else text for name, text in row.items()}

    @property
    def rows(self) -> list[Row]:
        """Rows of the CSV file."""
        return [{"set": self.data, "strategy": self.case.name, **row} for row in self.figures]


def summary(boxes: pd.DataFrame) -> Iterator[Row]:
    """Figures of what `measured` gives: of all boxes, then of those in every bin, however few."""
    yield {"by": "all", "bin": "", **_figures(boxes)}
    for kind, starts in BINS.items():
        for first, following in itertools.pairwise((*starts, math.inf)):
            held = boxes[boxes[kind].between(first, following, inclusive="left")]
            if len(held):
                yield {"by": kind, "bin": _bin(first, following), **_figures(held)}


def _bin(first: float, following: float) -> str:
    if math.isinf(following):
        return f"{first:,}+"
    return f"{first:,}" if following == first + 1 else f"{first:,}-{following - 1:,}"


def _figures(boxes: pd.DataFrame) -> dict[str, float]:
    def over(one: float, other: float) -> float:
        return one / other if other > 0 else math.nan

    error, unbiased, nearest = (
        math.sqrt(float((boxes[name] ** 2).mean())) for name in ("off", "unbiased off", "nearest off")
    )
    each = boxes.groupby("release")[["fell back", "seconds"]].first()
    return {
        "boxes": len(boxes),
        "coverage": float(boxes["held"].mean()),
        "width": over(float(boxes["width"].sum()), float(boxes["unbiased width"].sum())),
        "error / unbiased": over(error, unbiased),
        "error / nearest": over(error, nearest),
        "releases": len(each),
        "fell back": int(each["fell back"].sum()),
        "seconds": float(each["seconds"].mean()),
    }


def asked(domain: dh.Domain, number: int, seed: int) -> dh.Boxes:
    """Boxes of whole cells of a map in cells: half of all ranges alike, half with even logarithms of their sides."""
    rng = np.random.default_rng([SEED, seed])
    alike = dh.workloads.all_ranges(domain).sample(number // 2, seed).corners
    shape = np.array(domain.shape)
    side = np.exp(rng.uniform(0, np.log(shape + 1), (number - len(alike), len(shape)))).astype(np.int64)
    low = rng.integers(0, shape - side + 1)
    return dh.workloads.boxes(np.concatenate([alike, np.column_stack([low, low + side])]))


def measured(
    mechanism: dh.Mechanism, counts: Counts, releases: int, number: int, done: Callable[[int], None]
) -> pd.DataFrame:
    """Several releases of a map, each asked other boxes: a row per release and box."""
    domain, frames = mechanism.domain, []
    for seed in range(releases):
        rng = np.random.default_rng([SEED, seed])
        release = dh.publish(counts, mechanism, rng=rng, weak_protection_accepted=True)
        work = asked(domain, number, seed)
        spans = work.spans(domain)
        truth = box_sums(counts.astype(np.float64), spans)
        unbiased = dh.answer(release, work, level=LEVEL)
        start = time.process_time()
        found = dh.answer(release, work, level=LEVEL, nonnegative=True)
        columns = {
            "release": seed,
            "fell back": release.posterior is None,
            "seconds": time.process_time() - start,
            "area": np.prod([high - low for low, high in spans], axis=0),
            "count": truth,
            # Sums of cells are off by rounding where all is known.
            "held": (found["low"] <= truth + 1e-6) & (truth - 1e-6 <= found["high"]),
            "width": found["high"] - found["low"],
            "unbiased width": unbiased["high"] - unbiased["low"],
            "off": found["estimate"] - truth,
            "unbiased off": unbiased["estimate"] - truth,
            "nearest off": box_sums(release.projection.cells, spans) - truth,
        }
        frames.append(pd.DataFrame(columns))
        done(1)
    return pd.concat(frames, ignore_index=True)


def run(out: Path, small: bool, folder: Path | None = None, releases: int | None = None) -> Found:
    """Write nonnegative_intervals.csv (all bins) and nonnegative_intervals.png, and print the table as Markdown.

    Raises InputError if a folder is given that holds none of the data sets, or if there are to be no releases.
    """
    side, number, usual = (SMALL_SIDE, SMALL_BOXES, SMALL_RELEASES) if small else (SIDE, BOXES, RELEASES)
    releases = usual if releases is None else releases
    if releases < 1:
        raise InputError(f"--releases is {releases}: it must be 1 or more")
    maps = [] if folder is None else list(public(folder, side))
    maps += list(invented(side))[-SMALL_MAPS:] if small else [*stand_ins(side), *invented(side)]
    mechanisms = [(case, case.mechanism(side)) for case in CASES]
    results = []
    with progress("measuring", len(maps) * len(CASES) * releases, None) as done:
        for (name, counts), (case, mechanism) in itertools.product(maps, mechanisms):
            boxes = measured(mechanism, counts, releases, number, done)
            results.append(Measured(name, case, list(summary(boxes))))
    write_csv(out / "nonnegative_intervals.csv", [row for result in results for row in result.rows])
    print_markdown([result.printed for result in results])
    draw([result.rows[0] for result in results], out / "nonnegative_intervals.png")
    promised = [result for result in results if result.case.promised]
    coverage, width, error = (
        [result.figures[0][name] for result in promised] for name in ("coverage", "width", "error / nearest")
    )
    fell_back = sum(result.figures[0]["fell back"] for result in promised)
    return {
        "least coverage": min(coverage),
        "most coverage": max(coverage),
        "least coverage of a bin": min(result.lowest(kind)[0] for result in promised for kind in BINS),
        "mean width over the unbiased": float(np.mean(width)),
        "largest error over the nearest": max(error),
        "fell back": f"{fell_back} of {len(promised) * releases}",
        "miss an aim": f"{sum(bool(result.missed) for result in promised)} of {len(promised)}",
    }


def draw(rows: Sequence[Row], file: Path) -> None:
    """Coverage against width: a colour for every set, a mark for every strategy."""
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    drawn = figure(9.5, 6)
    axes = drawn.subplots()
    axes.axhspan(100 * COVERAGE[0], 100 * COVERAGE[1], color="0.9", zorder=0)
    axes.axhline(100 * LEVEL, color="0.6", lw=0.8, zorder=1)
    axes.axvline(WIDTH, color="0.6", lw=0.8, ls=":", zorder=1)
    sets = list(dict.fromkeys(row["set"] for row in rows))
    colours = dict(zip(sets, itertools.cycle([*colormaps["tab10"](range(10)), "black"]), strict=False))
    marks = {case.name: _mark(case) for case in CASES}
    for row in rows:
        place = [row["width"]], [100 * row["coverage"]]
        axes.plot(*place, color=colours[row["set"]], **marks[row["strategy"]])
    axes.set(
        xlabel=f"mean width of the intervals, over the unbiased intervals' (dotted: {WIDTH})",
        ylabel=f"boxes whose {LEVEL:.0%} interval holds the truth, %",
        title=f"Intervals of non-negative answers, map by map (shaded: {COVERAGE[0]:.1%} to {COVERAGE[1]:.1%})",
    )
    axes.set_xlim(left=0)
    axes.grid(alpha=0.25)
    key = [Line2D([], [], ls="", label="strategy:")]
    key += [Line2D([], [], color="0.3", label=name, **mark) for name, mark in marks.items()]
    key += [Line2D([], [], ls="", label=text) for text in ("", "map:")]
    key += [Line2D([], [], ls="", marker="s", color=colour, label=name) for name, colour in colours.items()]
    drawn.legend(handles=key, loc="outside right upper", fontsize=9, frameon=False)
    save(drawn, file)


def _mark(case: Case) -> dict[str, Any]:
    return {"ls": "", "ms": 8, "marker": case.mark, "fillstyle": "full" if case.promised else "none"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="public data sets (docs/datasets.md)")
    parser.add_argument(
        "--releases", type=int, metavar="NUMBER", help=f"of each set and strategy; usually {RELEASES}"
    )
    chosen = parser.parse_args(arguments)
    try:
        print_found(run(chosen.out, chosen.small, chosen.data, chosen.releases))
    except InputError as problem:
        parser.error(str(problem))
    print(f"CSV and PNG files are in {chosen.out}")


if __name__ == "__main__":
    main()
