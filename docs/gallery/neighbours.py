"""Who counts as a neighbour

δ is a distance on the ground. The orange cell's neighbours are the cells closer to it than δ, inside the dashed line.
Moving a visit from one to another costs at most ε.
"""

import sys
from pathlib import Path

import geopandas as gpd
import matplotlib.pyplot as plt
import numpy as np
import shapely

import deltahist as dh

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain(bounds=(0, 0, 3250, 3250), shape=(13, 13))  # cells of 250 m
middle = np.ravel_multi_index((6, 6), domain.shape)
centre = shapely.box(1500, 1500, 1750, 1750)

figure, axes = plt.subplots(1, 2, figsize=(5.2, 3.3))
for ax, delta in zip(axes, (500, 1000), strict=True):
    edges = dh.Neighbourhood(domain, delta=delta).edges()
    neighbours = np.setdiff1d(edges[(edges == middle).any(axis=1)], [middle])
    colours = np.full(domain.size, "#e9e9e9", dtype=object)
    colours[neighbours], colours[middle] = "#0072B2", "#E69F00"
    west, south = np.unravel_index(np.arange(domain.size), domain.shape)
    cells = gpd.GeoSeries(shapely.box(250 * west, 250 * south, 250 * west + 250, 250 * south + 250))
    cells.plot(ax=ax, color=colours, edgecolor="white", linewidth=1)
    gpd.GeoSeries([centre.buffer(delta)]).boundary.plot(ax=ax, color="#333333", linestyle="--", linewidth=1.2)
    ax.set_title(f"δ = {delta:,} m: {len(neighbours)} neighbours")
    ax.set_ylim(-450, 3300)
    ax.set_axis_off()
axes[0].plot([0, 1000], [-130, -130], color="#333333")
axes[0].text(500, -180, "1 km", ha="center", va="top")
figure.suptitle("A visit hides among the cells within δ", x=0.03, ha="left")
figure.savefig(sys.argv[1])
