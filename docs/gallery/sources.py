"""Where people may appear

By default, people only move, so their number is public. Sources are public places where people may also appear or
vanish, such as the map's edge or a metro line. Near them, even presence is hidden.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import shapely
from matplotlib.colors import ListedColormap

import deltahist as dh
from deltahist.sample import BOUNDS

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain.from_degrees(BOUNDS, cell="500m")
west, south, east, north = domain.bounds
stops = np.array([(0.08, 0.85), (0.3, 0.62), (0.52, 0.5), (0.72, 0.42), (0.92, 0.12)])
line = shapely.LineString(domain.low + stops * np.subtract(domain.high, domain.low))

figure, axes = plt.subplots(1, 2, figsize=(5.2, 3.8))
for ax, sources in zip(axes, ("boundary", line), strict=True):
    near = dh.Neighbourhood(domain, delta="1km", sources=sources)
    ax.pcolormesh(
        domain.edges(0),
        domain.edges(1),
        near.source_cells.T,
        cmap=ListedColormap(["#e9e9e9", "#E69F00"]),
        edgecolor="white",
        linewidth=0.6,
    )
    ax.set(aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
axes[0].set_title("the map's edge")
axes[1].set_title("a metro line")
axes[1].plot(*line.xy, "o-", color="0.2", linewidth=2, markersize=5)
figure.suptitle("Visits may appear or vanish in orange cells", x=0.03, ha="left")
figure.savefig(sys.argv[1])
