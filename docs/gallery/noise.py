"""The noise has a shape

Errors of one release by three strategies, all at ε = 1 for moves within 250 m. In single cells, identity errs least.
In large squares its errors add up, while those of tents and flow cancel.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import deltahist as dh
from deltahist.sample import BOUNDS, sample_points

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain.from_degrees(BOUNDS, cell="250m")
near = dh.Neighbourhood(domain, delta="250m", limits=[("any", 4)])
counts = dh.count(sample_points(), domain, x="lon", y="lat", crs="EPSG:4326")

figure, axes = plt.subplots(2, 3, figsize=(5.2, 5.9))
for column, strategy in zip(axes.T, ("identity", "tents", "flow"), strict=True):
    release = dh.publish(counts, near, strategy, epsilon=1, rng=np.random.default_rng(3))
    cells = release.cells() - counts.array
    squares = np.lib.stride_tricks.sliding_window_view(cells, (16, 16)).sum(axis=(2, 3))
    for ax, error, limit in zip(column, (cells, squares), (10, 100), strict=True):
        image = ax.imshow(error.T, cmap="berlin", vmin=-limit, vmax=limit)
        ax.set(title=f"{strategy}: ±{error.std():.0f}", xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
for row, what in zip(axes, ("each cell of 250 m", "each square of 4 km"), strict=True):
    bar = figure.colorbar(row[0].images[0], ax=row, location="bottom", shrink=0.8, aspect=40, pad=0.03)
    bar.locator = plt.MaxNLocator(4)
    bar.set_label(f"error of {what} (visits)")
figure.suptitle("Small errors add up, unless they cancel", x=0.03, ha="left")
figure.savefig(sys.argv[1])
