"""Change between two releases

Visits per district in two months, each month published at ε = 1. Coloured districts changed by more than noise
explains, at 95% for all together. A third one grew too, but the noise hides it.
"""

import sys
from pathlib import Path

import geopandas as gpd
import matplotlib.pyplot as plt
import numpy as np

import deltahist as dh
from deltahist.sample import BOUNDS, sample_districts, sample_points

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain.from_degrees(BOUNDS, cell="500m")
near = dh.Neighbourhood(domain, delta="500m", sources="boundary")
visits, districts, rng = sample_points(), sample_districts(), np.random.default_rng(1)
places = gpd.GeoDataFrame(visits, geometry=gpd.points_from_xy(visits.lon, visits.lat), crs="EPSG:4326")
trend = places.sjoin(districts).name.map({"District 15": 1.6, "District 20": 1.6, "District 11": 0.7}).fillna(1)

releases = []
for share in (0.5, 0.5 * trend):
    seen = visits[rng.random(len(visits)) < share]
    counts = dh.count(seen, domain, x="lon", y="lat", crs="EPSG:4326")
    releases.append(dh.publish(counts, near, epsilon=1, rng=rng))
change = dh.answer(dh.Difference(*releases), districts, simultaneous=True)
clear = (change.low > 0) | (change.high < 0)

figure, ax = plt.subplots(figsize=(5.2, 5.6))
change[~clear].plot(ax=ax, color="#e4e4e4", edgecolor="white")
most = 1.5 * change.estimate.abs().max()
change[clear].plot(ax=ax, column="estimate", cmap="PuOr_r", vmin=-most, vmax=most, edgecolor="white")
for district in change[clear].itertuples():
    middle, label = district.geometry.representative_point(), f"{district.estimate:+,.0f}".replace("-", "−")
    ax.text(middle.x, middle.y, label, ha="center", va="center", weight="bold")
ax.set_axis_off()
figure.suptitle("Change in visits, where it exceeds noise", x=0.03, ha="left")
figure.savefig(sys.argv[1])
