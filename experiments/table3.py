"""2014, Table 3: variance by range size for I_4 and C_4, and a search through all binary strategies on 4 cells.

The paper prints the worst range of each size (8, 16, 24, 32 and 4, 4, 4, 2). Its claim of optimality concerns the total
over all ten ranges, which those figures do not give: ranges that reach the right end need one row of C_4 instead of
two. The script prints the paper's figures, exact means, totals, and the best of all 32,768 sets of distinct binary
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import deltahist as dh
from deltahist.space.workloads import range_gram
from experiments._common import BLUE, GREY, ORANGE, Found, command, figure, print_table, save, write_csv

DOMAIN = dh.Domain((0, 1), (4,))
STRATEGIES = {"I_4": dh.strategies.Identity(DOMAIN), "C_4": dh.strategies.Cumulative(DOMAIN)}
PRINTED = {"I_4": (8, 16, 24, 32), "C_4": (4, 4, 4, 2)}
#: The nonzero binary rows on four cells. Row r − 1 spells r in binary, with the first cell first.
ROWS = np.array([[r >> (3 - cell) & 1 for cell in range(4)] for r in range(1, 16)])
#: Membership of rows in each of the 2^15 sets.
SETS = np.arange(1 << 15)[:, None] >> np.arange(15) & 1


def neighbourhood(sources: str | None) -> dh.Neighbourhood:
    """Return moves by one cell, with or without arrivals at the left end."""
    return dh.Neighbourhood(DOMAIN, delta=0.25, sources=sources)


@dataclass(frozen=True)
class Search:
    """Totals (32768,) over all ranges for every set of rows, infinite if a set does not determine some range."""

    name: str
    totals: NDArray[np.float64]

    @property
    def best(self) -> float:
        """The smallest total."""
        return float(self.totals.min())

    @property
    def optimal(self) -> list[list[str]]:
        """The sets that attain it, as rows of zeros and ones."""
        return [
            ["".join(map(str, ROWS[i])) for i in np.flatnonzero(SETS[k])]
            for k in np.flatnonzero(self.totals < self.best + 1e-6)
        ]

    def row(self) -> dict[str, object]:
        """Return a row of the table."""
        distinct = np.unique(self.totals[np.isfinite(self.totals)].round(6))
        return {
            "neighbourhood": self.name,
            "sets that determine all ranges": int(np.isfinite(self.totals).sum()),
            "smallest total": round(self.best, 6),
            "attained by sets": len(self.optimal),
            "next total": round(float(distinct[1]), 6),
            "for example": " ".join(self.optimal[0]),
        }


def search(sources: str | None, public_total: bool) -> NDArray[np.float64]:
    """Return the total variance 2 Δ² tr(Q (AᵀA)⁻¹ Qᵀ) of every set of rows at ε = 1, with continuous Laplace noise.

    A public total confines the estimate to counts that add up to it. With B an orthonormal basis of the vectors that
    add up to zero, (AᵀA)⁻¹ becomes B (BᵀAᵀAB)⁻¹ Bᵀ.
    """
    cuts = np.abs(ROWS @ neighbourhood(sources).incidence())
    sensitivity = (SETS @ cuts).max(axis=1)
    outer = (ROWS[:, :, None] * ROWS[:, None, :]).reshape(15, 16)
    gram = (SETS @ outer).reshape(-1, 4, 4).astype(float)
    workload = range_gram(DOMAIN)
    if public_total:
        basis = np.linalg.qr(np.column_stack([np.ones(4), np.eye(4)[:, :3]]))[0][:, 1:]
        gram, workload = basis.T @ gram @ basis, basis.T @ workload @ basis
    # In exact arithmetic both determinants are multiples of 1/4, so anything smaller is rounding.
    full = np.linalg.det(gram) > 0.1
    totals = np.full(len(SETS), np.inf)
    trace = np.einsum("ij,kji->k", workload, np.linalg.inv(gram[full]))
    totals[full] = 2 * sensitivity[full] ** 2 * trace
    return totals


def run(out: Path, small: bool) -> Found:
    """Compare the strategies, search, and write table3.csv, table3_search.csv and table3.png."""
    rows, totals = _compare()
    print_table(rows)
    searches = [
        Search("source at the left end", search("left", False)),
        Search("no source, total not used", search(None, False)),
        Search("no source, total public", search(None, True)),
    ]
    print()
    print_table([s.row() for s in searches])
    write_csv(out / "table3.csv", rows)
    write_csv(out / "table3_search.csv", [s.row() for s in searches])
    _draw(rows, searches[0], totals, out / "table3.png")
    return {
        "total of C_4, exact (discrete noise)": f"{totals['C_4'][0]:.2f} ({totals['C_4'][1]:.2f})",
        "total of I_4, exact (discrete noise)": f"{totals['I_4'][0]:.2f} ({totals['I_4'][1]:.2f})",
        **{f"optimum, {s.name}": round(s.best, 6) for s in searches},
    }


def _compare() -> tuple[list[dict[str, object]], dict[str, tuple[float, float]]]:
    """Return Table 3 with means and totals, for continuous and discrete noise."""
    work, near = dh.workloads.all_ranges(DOMAIN), neighbourhood("left")
    low, high = work.spans(DOMAIN)[0]
    size = (high - low).astype(int)
    rows: list[dict[str, object]] = [{"range size": s, "queries": int((size == s).sum())} for s in range(1, 5)]
    rows.append({"range size": "total", "queries": 10})
    totals = {}
    for name, strategy in STRATEGIES.items():
        exact = dh.expected_error(strategy, near, work, 1.0, continuous=True)
        discrete = dh.expected_error(strategy, near, work, 1.0)
        totals[name] = float(exact.sum()), float(discrete.sum())
        printed_total = sum(v * int((size == s).sum()) for s, v in enumerate(PRINTED[name], start=1))
        for s in range(1, 6):
            of = exact[size == s] if s < 5 else exact
            noisy = discrete[size == s] if s < 5 else discrete
            rows[s - 1] |= {
                f"{name} printed": PRINTED[name][s - 1] if s < 5 else printed_total,
                f"{name} worst": round(float(of.max()), 6) if s < 5 else "",
                f"{name} exact": round(float(of.mean() if s < 5 else of.sum()), 6),
                f"{name} discrete": round(float(noisy.mean() if s < 5 else noisy.sum()), 6),
            }
    return rows, totals


def _draw(
    rows: Sequence[dict[str, object]], with_source: Search, totals: dict[str, tuple[float, float]], file: Path
) -> None:
    drawn = figure(11, 4.4)
    left, right = drawn.subplots(1, 2)
    place = np.arange(4)
    series = [(f"{n} {k}", n, k) for n in STRATEGIES for k in ("printed", "exact")]
    colours = {"I_4 printed": GREY, "I_4 exact": ORANGE, "C_4 printed": "#b9b9b9", "C_4 exact": BLUE}
    for shift, (column, name, kind) in enumerate(series):
        what = "the paper prints" if kind == "printed" else "exact mean"
        left.bar(
            place + 0.2 * (shift - 1.5),
            [r[column] for r in rows[:4]],
            0.2,
            label=f"${name}$, {what}",
            color=colours[column],
        )
    left.set_xticks(place, ["1", "2", "3", "4"])
    left.set(xlabel="counts covered by the range", ylabel="variance (points²)", title="Table 3, ε = 1")
    left.legend(fontsize=9)
    finite = with_source.totals[np.isfinite(with_source.totals)]
    right.hist(finite, bins=np.geomspace(25, 4000, 60).tolist(), color=GREY)
    for name, colour in (("C_4", BLUE), ("I_4", ORANGE)):
        best = ", the optimum" if totals[name][0] < with_source.best + 1e-6 else ""
        right.axvline(totals[name][0], color=colour, linewidth=2, label=f"${name}$: {totals[name][0]:.0f}{best}")
    right.set(xscale="log", yscale="log", xlabel="total variance over all ranges (points²)")
    right.set(ylabel="sets of rows", title=f"All {len(finite):,} sets that determine the counts")
    right.legend(fontsize=9)
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
