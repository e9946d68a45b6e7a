"""Only what stands out

At ε = 0.3, single cells are mostly noise. The map merges cells that cannot be told apart, and leaves grey what may be
empty. On 95 of 100 such maps, every coloured block has visits.
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
release = dh.publish(counts, near, epsilon=0.3, rng=np.random.default_rng(1))

figure, ax = plt.subplots(figsize=(5.2, 5))
dh.plots.plot_map(release, ax)
ax.set_title("")
ax.tick_params(labelsize=10)
figure.axes[-1].tick_params(labelsize=10)  # the colour bar
figure.suptitle("Colour only what noise cannot explain", x=0.03, ha="left")
figure.savefig(sys.argv[1])
