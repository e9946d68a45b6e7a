"""What ε buys

The same visits at three privacy levels, and the truth that only the publisher sees. Smaller ε hides more: at ε = 0.1
the centre survives, at ε = 1 the quarters, at ε = 10 nearly everything.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm

import deltahist as dh
from deltahist.sample import BOUNDS, sample_points

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain.from_degrees(BOUNDS, cell="250m")
near = dh.Neighbourhood(domain, delta="500m")
counts = dh.count(sample_points(), domain, x="lon", y="lat", crs="EPSG:4326")

maps = {}
for epsilon in (0.1, 1, 10):
    release = dh.publish(counts, near, epsilon=epsilon, rng=np.random.default_rng(1))
    maps[f"ε = {epsilon}"] = release.cells(nonnegative=True)
maps["the truth"] = counts.array

figure, axes = plt.subplots(2, 2, figsize=(5.2, 6.8))
for ax, (name, cells) in zip(axes.flat, maps.items(), strict=True):
    image = ax.imshow(cells.T, norm=PowerNorm(0.5, vmin=0, vmax=100))
    ax.set(title=name, xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
bar = figure.colorbar(image, ax=axes, location="bottom", shrink=0.7, aspect=30, pad=0.02)
bar.set_ticks([0, 10, 40, 100], labels=["0", "10", "40", "100 or more"])
bar.set_label("visits per cell of 250 m")
figure.suptitle("More ε, more detail", x=0.03, ha="left")
figure.savefig(sys.argv[1])
