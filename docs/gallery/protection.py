"""Protection fades with distance

Within δ = 500 m, every move costs at most ε = 1. Longer moves cost more, up to a limit that you set. A lower limit
adds noise: the error is that of a typical rectangle, in visits.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

import deltahist as dh
from deltahist.sample import BOUNDS

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain.from_degrees(BOUNDS, cell="500m")
limits = {"no limit": (), "limit 8": [("any", 8)], "limit 4": [("any", 4)], "limit 2": [("any", 2)]}

figure, ax = plt.subplots(figsize=(5.2, 4.4))
for name, limit in limits.items():
    near = dh.Neighbourhood(domain, delta="500m", limits=limit)
    best = dh.plan(near, epsilon=1)[0]
    curve = dh.plots.protection_curve(best.mechanism)
    distance, loss = curve["distance"] / 1000, curve["exact"]
    (line,) = ax.step(distance, loss, where="pre")
    label = f"{name}: error {best.rmse:.0f}"
    ax.annotate(label, (distance[-1], 1.04 * loss[-1]), color=line.get_color(), ha="right", va="bottom")
ax.axvline(0.5, color="0.6", linewidth=1, linestyle="--")
ax.annotate("δ", (0.5, 30), xytext=(-4, 0), textcoords="offset points", ha="right")
ax.set(xscale="log", yscale="log", xlabel="distance of the move (km)", ylabel="privacy loss (ε)", ylim=(0.9, 42))
ax.set_xticks([0.2, 0.5, 1, 2, 5, 10, 20], labels=["0.2", "0.5", "1", "2", "5", "10", "20"])
ax.set_yticks([1, 2, 4, 8, 16, 32], labels=["1", "2", "4", "8", "16", "32"])
ax.minorticks_off()
figure.suptitle("Limits on long moves cost little accuracy", x=0.03, ha="left")
figure.savefig(sys.argv[1])
