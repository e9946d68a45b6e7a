"""Unbiased or non-negative

One row of cells through the city, at ε = 0.5. Unbiased estimates scatter around the truth, also below zero.
Non-negative ones are closer in empty places. Both come from the same file.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import deltahist as dh
from deltahist.sample import BOUNDS, sample_points

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain.from_degrees(BOUNDS, cell="250m")
near = dh.Neighbourhood(domain, delta="500m")
counts = dh.count(sample_points(), domain, x="lon", y="lat", crs="EPSG:4326")
release = dh.publish(counts, near, epsilon=0.5, rng=np.random.default_rng(1))

row, edges = 40, (domain.edges(0) - domain.low[0]) / 1000
truth = counts.array[:, row]

figure, axes = plt.subplots(2, sharex=True, sharey=True, figsize=(5.2, 5))
for ax, nonnegative, colour in zip(axes, (False, True), ("C1", "C0"), strict=True):
    cells = release.cells(nonnegative=nonnegative)
    error = np.sqrt(np.mean((cells - counts.array) ** 2))
    ax.stairs(truth, edges, fill=True, color="0.82")
    ax.stairs(cells[:, row], edges, baseline=None, color=colour, linewidth=1.8)
    ax.axhline(0, color="0.4", linewidth=0.8)
    name = "non-negative" if nonnegative else "unbiased"
    ax.set_title(f"{name}: typical error {error:.1f} visits", color=colour)
axes[1].annotate("truth", (8.5, 150), color="0.45")
axes[1].set_xlabel("km from the western edge")
figure.supylabel("visits per cell of 250 m", fontsize=11)
figure.suptitle("Two readings of one release", x=0.03, ha="left")
figure.savefig(sys.argv[1])
