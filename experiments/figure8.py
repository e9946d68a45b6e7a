"""2014, Figure 8: errors of equal shares, online and offline allocation, and the best possible policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from deltahist.accounts.allocation import allocate_current_step, allocate_offline, draw_futures, limits_ahead
from experiments._common import BLUE, GREEN, GREY, ORANGE, Found, command, figure, save, write_csv
from experiments._policy import best_policy
from experiments.figure7 import error

#: The first three panels are the paper's.
PANELS = ((4, 0.5), (7, 0.5), (4, 0.75), (7, 0.75))
STEPS = 50
#: The best policy may spend only multiples of the limit divided by this number.
PARTS = {4: 60, 7: 42}


def run(out: Path, small: bool) -> Found:
    """Write figure8.csv (mean errors of the first n steps over 1,000 draws) and figure8.png."""
    repetitions, scenarios = (15, 10) if small else (1000, 100)
    rows: list[dict[str, object]] = []
    found: Found = {}
    for window, chance in PANELS[::3] if small else PANELS:
        rng = np.random.default_rng(8)
        weights = (rng.random((repetitions, STEPS)) < chance).astype(float)
        spent = online(weights, window, chance, scenarios, rng)
        sums = np.cumsum(np.pad(spent, ((0, 0), (1, 0))), axis=1)
        worst = float((sums[:, window:] - sums[:, :-window]).max())
        assert worst <= 1 + 1e-9, worst
        policy = best_policy(chance, STEPS, window, PARTS[window] // 3 if small else PARTS[window])
        equal = weights.sum(axis=1) * window**2
        offline = np.array([error(w, allocate_offline(w, length=window, epsilon=1.0)) for w in weights])
        made = np.array([error(w, e) for w, e in zip(weights, spent, strict=True)])
        gap = equal.mean() - offline.mean()
        # Weight the best policy's expected error by this sample's own number of weights.
        expected = float(policy[-1]) * equal.mean() / (STEPS * chance * window**2)
        name = f"δ = {window}, p = {chance:g}"
        rows.append(
            {
                "window": window,
                "p": chance,
                "n": STEPS,
                "equal": float(equal.mean()),
                "online": float(made.mean()),
                "best policy": expected,
                "offline": float(offline.mean()),
                "gap closed": float((equal.mean() - made.mean()) / gap),
                "gap closed by the best policy": float((equal.mean() - expected) / gap),
                "regret": float(made.mean() / offline.mean() - 1),
                "standard error of online": float(made.std() / np.sqrt(repetitions)),
                "largest window": worst,
            }
        )
        found[f"gap closed at {name} (by the best policy)"] = (
            f"{rows[-1]['gap closed']:.3f} ({rows[-1]['gap closed by the best policy']:.3f})"
        )
    write_csv(out / "figure8.csv", rows)
    _draw(rows, out / "figure8.png")
    return found


def online(
    weights: NDArray[np.float64], window: int, chance: float, scenarios: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the amounts (R, n) that online allocation spends, for all draws of the weights at once."""
    steps = weights.shape[1]
    spent = np.zeros(weights.shape)
    for step in range(steps):
        asked = np.flatnonzero(weights[:, step])
        horizon = min(3 * window, steps - step)
        limits = limits_ahead(spent[asked, max(0, step - window + 1) : step], window, horizon)
        if horizon == 1:
            spent[asked, step] = limits[0]
            continue
        drawn = draw_futures(chance, weights[0, : step + 1], horizon - 1, len(asked) * scenarios, rng)
        ahead = drawn.T.reshape(horizon - 1, len(asked), scenarios)
        for part in np.array_split(np.arange(len(asked)), -(-len(asked) // 100)):
            found = allocate_current_step(np.ones(len(part)), ahead[:, part], limits[:, part], window, 2.0)
            spent[asked[part], step] = np.minimum(found, limits[0, part])
    return spent


def _draw(rows: Sequence[dict[str, object]], file: Path) -> None:
    drawn = figure(9, 4.6)
    axes = drawn.subplots()
    place = np.arange(len(rows))
    bars = (("equal", GREY), ("online", BLUE), ("best policy", GREEN), ("offline", ORANGE))
    for i, (name, colour) in enumerate(bars):
        height = [float(str(r[name])) for r in rows]
        axes.bar(place + (i - 1.5) * 0.2, height, 0.19, color=colour, label=name)
        for x, y in zip(place + (i - 1.5) * 0.2, height, strict=True):
            axes.text(x, y, f"{y:,.0f}", ha="center", va="bottom", fontsize=7.5)
    axes.set_xticks(place, [f"δ = {r['window']}, p = {r['p']}" for r in rows])
    axes.set(title=f"total error over {STEPS} steps, ε = 1 per window", ylabel="Σ w / ε² (mean over draws of w)")
    axes.legend(fontsize=9)
    save(drawn, file)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script from the command line."""
    command(run, __doc__, arguments)


if __name__ == "__main__":
    main()
