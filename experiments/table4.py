"""2014, Table 4: growth of the largest and the total error over all ranges, measured and fitted.

Errors are `expected_error` over all ranges at ε = 1 with continuous Laplace noise, a source at the left end and δ of
whole bins. Y_n is unnormalised Haar. Powers of n and δ are slopes on double logarithmic axes over the last doubling.
Powers of log n are p in a (log₂ n + b)^p, where b absorbs the lower terms. The paper prints δ for C_{n,δ}; it should be
δ², since δ is the sensitivity and the variance is its square.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import deltahist as dh
from experiments._common import BLUE, GREEN, GREY, ORANGE, Found, command, figure, print_table, save, write_csv

KINDS = {
    "H_n": dh.strategies.Hierarchical,
    "Y_n": dh.strategies.Wavelet,
    "I_n": dh.strategies.Identity,
    "C_n": dh.strategies.Cumulative,
}
COLOURS = {"H_n": ORANGE, "Y_n": GREEN, "I_n": GREY, "C_n": BLUE}
SHIFTS = (1, 2, 4, 8, 16)


def errors(kind: str, n: int, delta: int) -> tuple[float, float]:
    """Return the largest and the total variance over all ranges of n bins, for moves of up to δ bins."""
    domain = dh.Domain((0, 1), (n,))
    near = dh.Neighbourhood(domain, delta=delta / n, sources="left")
    work = dh.workloads.all_ranges(domain)
    variance = dh.expected_error(KINDS[kind](domain), near, work, 1.0, continuous=True)
    return float(variance.max()), float(variance.sum())


def slope(x: Sequence[float], y: NDArray[np.float64]) -> float:
    """Return the power of x in y over the last doubling."""
    return float(np.log(y[-1] / y[-2]) / np.log(x[-1] / x[-2]))


def log_power(n: Sequence[int], error: NDArray[np.float64]) -> float:
    """Return p in error = a (log₂ n + b)^p, by least squares on the logarithm."""
    from scipy.optimize import curve_fit

    def model(x: NDArray[np.float64], a: float, b: float, p: float) -> NDArray[np.float64]:
        return a + p * np.log(x + b)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ignore the warning that the fit is exact
        found, _ = curve_fit(model, np.log2(n), np.log(error), p0=(0.0, 0.5, 3.0), bounds=([-9, -3, 0], [9, 9, 9]))
    return float(found[2])


def run(out: Path, small: bool) -> Found:
    """Measure the errors, fit their growth, and write table4_errors.csv, table4.csv and table4.png."""
    sizes = [2**k for k in range(4, 9 if small else 11)]
    measured = {kind: np.array([errors(kind, n, 1) for n in sizes]) for kind in KINDS}
    by_delta = np.array([errors("C_n", sizes[-1], d) for d in SHIFTS])
    write_csv(out / "table4_errors.csv", _listed(sizes, measured, by_delta))
    rows = _fitted(sizes, measured, by_delta)
    print_table(rows)
    write_csv(out / "table4.csv", rows)
    _draw(sizes, measured, by_delta, out / "table4.png")
    return {f"{r['strategy']}, {r['error']}: {r['power of']}": f"{r['fitted']} (printed {r['printed']})" for r in rows}


def _listed(
    sizes: Sequence[int], measured: dict[str, NDArray[np.float64]], by_delta: NDArray[np.float64]
) -> list[dict[str, object]]:
    points = [(k, n, 1, *e) for k, found in measured.items() for n, e in zip(sizes, found, strict=True)]
    points += [("C_n", sizes[-1], d, *e) for d, e in zip(SHIFTS[1:], by_delta[1:], strict=True)]
    names = ("strategy", "bins", "delta in bins", "max error", "total error")
    return [dict(zip(names, point, strict=True)) for point in points]


def _fitted(
    sizes: Sequence[int], measured: dict[str, NDArray[np.float64]], by_delta: NDArray[np.float64]
) -> list[dict[str, object]]:
    """Return one row per power in the paper's table."""
    ranges = np.array([n * (n + 1) / 2 for n in sizes])
    rows: list[tuple[str, str, str, str, float]] = []
    for kind in ("H_n", "Y_n"):
        worst, total = measured[kind].T
        rows.append((kind, "max", "log n", "3", log_power(sizes, worst)))
        # The number of ranges is of order n², so dividing by it leaves the power of the logarithm.
        rows.append((kind, "total / ranges", "log n", "3", log_power(sizes, total / ranges)))
    worst, total = measured["I_n"].T
    rows += [("I_n", "max", "n", "1", slope(sizes, worst)), ("I_n", "total", "n", "3", slope(sizes, total))]
    worst, total = measured["C_n"].T
    rows += [("C_n", "max", "n", "0", slope(sizes, worst)), ("C_n", "total", "n", "2", slope(sizes, total))]
    for name, errors_by_delta in zip(("max", "total"), by_delta.T, strict=True):
        rows.append(("C_n", name, "δ", "1; should be 2", slope(SHIFTS, errors_by_delta)))
    names = ("strategy", "error", "power of", "printed", "fitted")
    return [dict(zip(names, (*row[:4], round(row[4], 3)), strict=True)) for row in rows]


def _draw(
    sizes: Sequence[int], measured: dict[str, NDArray[np.float64]], by_delta: NDArray[np.float64], file: Path
) -> None:
    drawn = figure(13, 4.4)
    panels = drawn.subplots(1, 3)
    for axes, column, what in zip(panels, (0, 1), ("largest", "total"), strict=False):
        for kind, found in measured.items():
            label = f"${kind}$" + (", δ = 1 bin" if kind == "C_n" else "")
            axes.loglog(sizes, found[:, column], "o-", color=COLOURS[kind], label=label)
        axes.set(xlabel="bins n", ylabel=f"{what} variance (points²)", title=f"{what} error over all ranges, ε = 1")
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.minorticks_off()
        axes.legend()
    axes = panels[2]
    axes.loglog(SHIFTS, by_delta[:, 0], "o-", color=BLUE, label=f"$C_n$, n = {sizes[-1]}, measured")
    first = by_delta[0, 0]
    axes.loglog(SHIFTS, first * np.array(SHIFTS) ** 2.0, "--", color="black", linewidth=1, label="∝ δ²")
    axes.loglog(SHIFTS, first * np.array(SHIFTS), ":", color=GREY, label="∝ δ, as the paper prints")
    axes.set(xlabel="δ (bins)", ylabel="largest variance (points²)", title="the cost of a longer δ")
    axes.set_xticks(SHIFTS, [str(d) for d in SHIFTS])
    axes.minorticks_off()
    axes.legend()
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
