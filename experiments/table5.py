"""2014, Table 5: mean square error of random squares answered by equi-width histograms of several bin widths.

Errors on the stand-ins, next to the paper's. ε = 1, Laplace noise of scale 2, answers by shares of area, eq. (8).
Nothing is simulated: squared bias and noise variance of every query are exact. The paper's data sets are not public and
its figures are mostly bias, which depends on exact positions of points, so only the pattern is comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments._common import BLUE, GREEN, ORANGE, Found, command, figure, print_table, save, write_csv
from experiments._squares import STAND_INS, WIDTHS, Squares, StandIn, equi_width

SIZES = (0.01, 0.1, 0.2)
SHOWN = (0.005, 0.01, 0.015, 0.02)
#: The paper's mean square errors by data set and size, for the widths shown.
PRINTED = {
    (1, 0.01): (62.01, 86.16, 94.12, 100.69),
    (1, 0.1): (13218, 9895.7, 6726, 8901.6),
    (1, 0.2): (72161, 40301, 24952, 20381),
    (2, 0.01): (4112.7, 6166.4, 8227.1, 13105),
    (2, 0.1): (232689, 82449, 86034, 175203),
    (2, 0.2): (249344, 186891, 115664, 103929),
}


def run(out: Path, small: bool) -> Found:
    """Compute the errors, and write table5.csv (all sixteen widths) and table5.png."""
    rows = [row for stand_in in STAND_INS for row in _errors(stand_in, 500 if small else 10_000)]
    write_csv(out / "table5.csv", rows)
    table, found = [], {}
    for number, size in ((s.dataset, q) for s in STAND_INS for q in SIZES):
        part = {r["k"]: r for r in rows if (r["dataset"], r["query range"]) == (number, size)}
        line: dict[str, object] = {"stand-in for dataset": number, "query range": size}
        for k in SHOWN:
            line[f"k = {k}"] = f"{part[k]['mse']:.5g}"
            line[f"paper, {k}"] = f"{part[k]['paper']}" or "none"
        table.append(line)
        best = min(part.values(), key=lambda r: float(str(r["mse"])))
        found[f"stand-in {number}, range {size}: best width and its error"] = f"{best['k']}, {best['mse']:.5g}"
    print_table(table)
    _draw(rows, out / "table5.png")
    return found


def _errors(stand_in: StandIn, number: int) -> list[dict[str, object]]:
    points = stand_in.points()
    squares = Squares.of(points, SIZES, number)
    rows: list[dict[str, object]] = []
    for k in WIDTHS:
        for size, bias, noise in zip(SIZES, *equi_width(points, squares, k), strict=True):
            printed = dict(zip(SHOWN, PRINTED.get((stand_in.dataset, size), ()), strict=False))
            rows.append(
                {
                    "dataset": stand_in.dataset,
                    "query range": size,
                    "k": k,
                    "mse": round(float(bias + noise), 2),
                    "squared bias": round(float(bias), 2),
                    "noise variance": round(float(noise), 2),
                    "paper": printed.get(k, ""),
                }
            )
    return rows


def _draw(rows: Sequence[dict[str, object]], file: Path) -> None:
    drawn = figure(13.5, 5.6)
    for axes, stand_in in zip(drawn.subplots(1, 3), STAND_INS, strict=True):
        for size, colour in zip(SIZES, (BLUE, ORANGE, GREEN), strict=True):
            part = [r for r in rows if (r["dataset"], r["query range"]) == (stand_in.dataset, size)]
            axes.semilogy(WIDTHS, [r["mse"] for r in part], "o-", color=colour, markersize=4, label=f"range {size}")
            paper = [(r["k"], r["paper"]) for r in part if r["paper"] != ""]
            if paper:
                label = f"range {size}, paper's own set"
                axes.semilogy(*zip(*paper, strict=True), "x", color=colour, markersize=8, label=label)
        axes.set(xlabel="bin width k (1 = side of the domain)", ylabel="mean square error (points²)")
        axes.set_title(f"stand-in for dataset {stand_in.dataset}\n{stand_in.what}", fontsize=11)
        axes.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.15))
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
