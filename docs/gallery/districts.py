"""Every answer has an interval

Visits in 24 districts, from one release at ε = 0.2. Dots are estimates, bars are 95% intervals. The diamonds are the
true numbers, which readers never see.
"""

import sys
from pathlib import Path

import geopandas as gpd
import matplotlib.pyplot as plt
import numpy as np

import deltahist as dh
from deltahist.sample import BOUNDS, sample_districts, sample_points

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain.from_degrees(BOUNDS, cell="250m")
near = dh.Neighbourhood(domain, delta="500m")
visits, districts = sample_points(), sample_districts()
counts = dh.count(visits, domain, x="lon", y="lat", crs="EPSG:4326")
release = dh.publish(counts, near, epsilon=0.2, rng=np.random.default_rng(0))
answers = dh.answer(release, districts)

points = gpd.GeoDataFrame(geometry=gpd.points_from_xy(visits.lon, visits.lat), crs="EPSG:4326")
answers["truth"] = districts.sjoin(points).groupby("name").size().reindex(districts.name, fill_value=0).to_numpy()
answers = answers.sort_values("estimate")
inside = answers.truth.between(answers.low, answers.high).sum()

figure, ax = plt.subplots(figsize=(5.2, 6.6))
ax.hlines(answers.name, answers.low, answers.high, linewidth=5, alpha=0.35)
ax.plot(answers.estimate, answers.name, "o", markersize=6)
ax.plot(answers.truth, answers.name, "D", markersize=4.5, markerfacecolor="none", markeredgewidth=1.4)
figure.suptitle(f"{inside} of 24 intervals contain the truth", x=0.03, ha="left")
ax.set(xlabel="visits", ylim=(-0.7, 23.7))
ax.xaxis.set_major_formatter("{x:,.0f}")
ax.tick_params(axis="y", length=0, labelsize=9)
ax.grid(axis="x")
ax.annotate("estimate, 95% interval", (2700, 21), color="C0", va="center")
ax.annotate("truth", (2700, 20), color="C1", va="center")
figure.savefig(sys.argv[1])
