"""A year, week by week

Weekly releases at ε = 0.5 each, with 95% intervals. A fair draws visitors to one district for six weeks. A visit
counts in one week only, so all weeks together cost it ε = 0.5.
"""

import sys
from pathlib import Path

import geopandas as gpd
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import deltahist as dh
from deltahist.answers import answer_each
from deltahist.sample import BOUNDS, sample_districts, sample_points

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain.from_degrees(BOUNDS, cell="500m")
near = dh.Neighbourhood(domain, delta="500m", sources="boundary")
districts, rng = sample_districts().iloc[[10, 14]], np.random.default_rng(1)
visits = sample_points()
places = gpd.GeoSeries(gpd.points_from_xy(visits.lon, visits.lat), crs="EPSG:4326")
fair = places.within(districts.geometry.iloc[1])

releases = {}
for number, week in enumerate(pd.date_range("2026-01-05", periods=52, freq="7D")):
    visitors = 500 if 20 <= number < 26 else 0
    seen = pd.concat([visits.sample(4000, random_state=number), visits[fair].sample(visitors, random_state=number)])
    counts = dh.count(seen, domain, x="lon", y="lat", crs="EPSG:4326")
    releases[f"{week:%Y-%m-%d}"] = dh.publish(counts, near, "tents", epsilon=0.5, rng=rng)

answers = answer_each(dh.Series.from_names(releases), districts)
answers["step"] = pd.to_datetime(answers.step)

figure, ax = plt.subplots()
for name, line in answers.groupby("name"):
    ax.fill_between(line.step, line.low, line.high, alpha=0.25, linewidth=0)
    (drawn,) = ax.plot(line.step, line.estimate)
    ax.annotate(f" {name}", (line.step.iloc[-1], line.estimate.iloc[-6:].mean()), color=drawn.get_color(), va="center")
ax.set_xlim(right=pd.Timestamp("2027-03-25"))
months = pd.date_range("2026-01-01", periods=7, freq="2MS")
ax.set_xticks(months, labels=months.strftime("%b"))
ax.set(ylabel="visits per week", ylim=(0, None))
ax.yaxis.set_major_formatter("{x:,.0f}")
figure.suptitle("A fair doubles the visits to one district", x=0.03, ha="left")
figure.savefig(sys.argv[1])
