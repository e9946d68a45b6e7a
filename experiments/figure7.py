"""2014, Figure 7: error of the offline optimum against equal shares, for weights of 0 and 1 and δ = 4 (and 7)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deltahist.accounts.allocation import allocate_offline
from experiments._common import BLUE, ORANGE, Found, command, figure, save, write_csv

NUMBERS = (10, 20, 30, 50, 75, 100, 150, 200)


def run(out: Path, small: bool) -> Found:
    """Write figure7.csv (mean errors over 1,000 draws of the weights) and figure7.png."""
    rng = np.random.default_rng(7)
    repetitions = 2 if small else 1000
    rows: list[dict[str, object]] = []
    for window in (4, 7):
        for chance in (0.5, 0.75):
            for n in NUMBERS[1::3] if small else NUMBERS:
                weights = (rng.random((repetitions, n)) < chance).astype(float)
                best = [error(w, allocate_offline(w, length=window, epsilon=1.0)) for w in weights]
                equal = weights.sum(axis=1) * window**2
                rows.append(
                    {
                        "window": window,
                        "p": chance,
                        "n": n,
                        "equal": float(equal.mean()),
                        "offline": float(np.mean(best)),
                        "offline / equal": float(np.mean(best) / equal.mean()),
                    }
                )
    write_csv(out / "figure7.csv", rows)
    _draw(rows, out / "figure7.png")
    return {
        f"offline over equal error at δ = {w}, p = {p}, n = 50": next(
            (float(str(r["offline / equal"])) for r in rows if (r["window"], r["p"], r["n"]) == (w, p, 50)), "not run"
        )
        for w in (4, 7)
        for p in (0.5, 0.75)
    }


def error(weights: np.ndarray, amounts: np.ndarray) -> float:
    """Return Σ w ε^−2 over the steps with a positive weight."""
    on = weights > 0
    return float((weights[on] / amounts[on] ** 2).sum())


def _draw(rows: Sequence[dict[str, object]], file: Path) -> None:
    drawn = figure(10, 4.4)
    left, right = drawn.subplots(1, 2)
    for chance, colour in ((0.5, BLUE), (0.75, ORANGE)):
        for window, line in ((4, "-"), (7, "--")):
            chosen = [r for r in rows if (r["window"], r["p"]) == (window, chance)]
            n = [r["n"] for r in chosen]
            label = f"δ = {window}, p = {chance:g}"
            right.plot(n, [r["offline / equal"] for r in chosen], "o" + line, color=colour, markersize=4, label=label)
            for name, style in (("equal", "o:"), ("offline", "o-")) if window == 4 else ():
                text = f"{name}, p = {chance:g}"
                left.plot(n, [r[name] for r in chosen], style, color=colour, markersize=4, label=text)
    left.set(title="total error, δ = 4, ε = 1", ylabel="Σ w / ε² (mean over draws of w)")
    right.set(title="offline over equal shares", ylabel="ratio of mean errors", ylim=(0, 1))
    for axes in (left, right):
        axes.set_xlabel("steps n")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
