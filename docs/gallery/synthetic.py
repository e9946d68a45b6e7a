"""Points that belong to nobody

The centre of the city: true visits, and synthetic ones drawn from a release at ε = 1. Tools that need points can use
them. They follow the density, and clump less than people do.
"""

import sys
from pathlib import Path

import geopandas as gpd
import matplotlib.pyplot as plt
import numpy as np

import deltahist as dh
from deltahist.sample import BOUNDS, sample_points

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain.from_degrees(BOUNDS, cell="250m")
near = dh.Neighbourhood(domain, delta="500m")
visits = sample_points()
counts = dh.count(visits, domain, x="lon", y="lat", crs="EPSG:4326")
release = dh.publish(counts, near, epsilon=1, rng=np.random.default_rng(1))
made_up = dh.synthetic(release, rng=np.random.default_rng(2))

true = gpd.GeoSeries(gpd.points_from_xy(visits.lon, visits.lat), crs="EPSG:4326").to_crs(domain.crs)
middle = np.add(domain.low, domain.high) / 2
figure, axes = plt.subplots(1, 2, figsize=(5.2, 3.6))
for ax, x, y, colour in ((axes[0], true.x, true.y, "C1"), (axes[1], made_up.x, made_up.y, "C0")):
    ax.scatter(x, y, s=1.2, color=colour, alpha=0.35, linewidth=0)
    ax.spines[:].set_visible(False)
    ax.set(aspect="equal", xticks=[], yticks=[], xlim=middle[0] + [-3500, 3500], ylim=middle[1] + [-4000, 4000])
axes[0].set_title("true visits", color="C1")
axes[1].set_title("synthetic visits", color="C0")
figure.suptitle("Synthetic points keep the density of visits", x=0.03, ha="left")
figure.savefig(sys.argv[1])
