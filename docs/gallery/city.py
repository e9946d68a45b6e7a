"""A whole city from one file

20,000 visits to a made-up city, released in 250 m cells. Moves within 500 m are hidden at ε = 1. Non-negative
estimates show the centre, its suburbs and the gap of the river. The lines are districts.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm

import deltahist as dh
from deltahist.sample import BOUNDS, sample_districts, sample_points

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

# Private: the visits and their counts.
domain = dh.Domain.from_degrees(BOUNDS, cell="250m")
near = dh.Neighbourhood(domain, delta="500m")
counts = dh.count(sample_points(), domain, x="lon", y="lat", crs="EPSG:4326")

# Public: the release. A real one needs no seed.
release = dh.publish(counts, near, epsilon=1, rng=np.random.default_rng(1))
density = release.cells(nonnegative=True) / 0.25**2

west, south, east, north = domain.bounds
figure, ax = plt.subplots(figsize=(5.2, 5.4))
image = ax.imshow(density.T, extent=(west, east, south, north), norm=PowerNorm(0.5, vmin=0, vmax=2000))
sample_districts().to_crs(domain.crs).boundary.plot(ax=ax, color="white", linewidth=0.5, alpha=0.35)
ax.plot([east - 3300, east - 1300], [south + 700] * 2, color="white", linewidth=2)
ax.text(east - 2300, south + 850, "2 km", color="white", ha="center", va="bottom")
ax.set(xlim=(west, east), ylim=(south, north), xticks=[], yticks=[], xlabel="", ylabel="")
figure.suptitle("The centre and its suburbs, at ε = 1", x=0.03, ha="left")
bar = figure.colorbar(image, ax=ax, location="bottom", shrink=0.7, aspect=30, pad=0.02)
bar.set_ticks([0, 100, 500, 1000, 2000], labels=["0", "100", "500", "1,000", "2,000+"])
bar.set_label("visits per km²")
figure.savefig(sys.argv[1])
