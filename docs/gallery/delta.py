"""What δ costs

Expected error of all rectangles of 250 m cells, for the best strategy of each setting. Hiding moves over longer
distances needs more noise, and so does a smaller ε. No data are needed to plan.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

import deltahist as dh

plt.style.use(Path(__file__).with_name("gallery.mplstyle"))

domain = dh.Domain(bounds=(0, 0, 10_000, 10_000), shape=(40, 40))
rectangles = dh.workloads.all_ranges(domain)
deltas = [250, 500, 1000, 2000, 4000]

figure, ax = plt.subplots()
for epsilon in (0.5, 1, 2):
    errors = []
    for delta in deltas:
        best = dh.plan(dh.Neighbourhood(domain, delta), rectangles, epsilon=epsilon)[0]
        errors.append(best.rmse)
    (line,) = ax.plot(deltas, errors, "o-")
    ax.annotate(f"  ε = {epsilon}", (deltas[-1], errors[-1]), color=line.get_color(), va="center")
ax.set(xscale="log", xlabel="δ, the distance of the hidden moves", ylabel="standard error (visits)", ylim=(0, None))
ax.set_xticks(deltas, labels=["250 m", "500 m", "1 km", "2 km", "4 km"])
ax.minorticks_off()
ax.set_xlim(right=6500)
ax.grid(axis="y")
figure.suptitle("Hiding longer moves needs more noise", x=0.03, ha="left")
figure.savefig(sys.argv[1])
